/* The operations of a recorded run, made one after the other: each must be possible where it comes.

   `operations.pml`, which a test writes, defines CLAIMS, INSTANCES, LAUNCHES, CLUSTERS and LENGTH, and the arrays
   `operation`, `first`, `second` and `install_of`. Claims, instances, launches and clusters of all installs are numbered
   within the run. */

#define NUMBER short
#include "operations.pml"
#include "effects.pml"

#define COMMITS 1
#define LEASES 2
#define WAITS 3
#define ASSIGNS 4
#define FAILS 5
#define WRITTEN 6
#define ASKS 7
#define ANSWERS 8
#define STARTS 9
#define REGISTERS 10
#define INITIALIZES 11
#define DISRUPTS 12
#define DRAINS 13
#define GIVES_UP 14
#define TERMINATES 15
#define COLLECTS 16
#define FINISHES 17
#define ADOPTS 18
#define TOUCHES 19
#define STRAYS 20
#define RESTORES 21
#define HOLDS 22
#define MOVES 23
#define MOVED 24
#define RESTORES_EPOCH 25
#define LOSES 26
#define RESTS 27

int at;   /* How many operations were made. */

/* The epoch of each cluster, and whether claims are committed whose transaction has not moved one yet. */
NUMBER epoch[CLUSTERS];
bit is_committing;

/* The end of a commit by a function that has read the epoch last as `was_read`. Promise: nobody else has committed since,
   and the next one who has read it earlier is refused. */
inline move_epoch(cluster, was_read) {
  assert(epoch[cluster] == (was_read));
  epoch[cluster]++;
  is_committing = 0
}

/* When nothing is left to do, every instance has a claim or has ended, and every claim has its instance. */
inline must_be_settled() {
  a = 0;
  do
  :: a < CLAIMS -> assert(!is_live(a) || (holds[a] > 0 && ec2[holds[a] - 1] == RUNNING)); a++
  :: else -> break
  od;
  a = 0;
  do
  :: a < INSTANCES -> look_for_holder(a); assert(found || ec2[a] != RUNNING); a++
  :: else -> break
  od
}

proctype run_of_all() {
  byte state[CLAIMS];
  NUMBER holds[CLAIMS], token[CLAIMS];
  bit written[LAUNCHES], in_write[CLAIMS];
  NUMBER a, b;

  do
  :: at < LENGTH ->
     d_step {
       a = first[at];
       b = second[at];
       assert(!is_committing || operation[at] == COMMITS || operation[at] == MOVES);
       if
       :: operation[at] == COMMITS -> commit(a, b); is_committing = 1
       :: operation[at] == MOVES -> move_epoch(a, b)
       :: operation[at] == MOVED -> assert(epoch[a] == b)   /* As the table says. */
       :: operation[at] == LEASES -> lease(a)
       :: operation[at] == WAITS -> wait(a)
       :: operation[at] == ASSIGNS -> assign(a, b, install_of[at])
       :: operation[at] == FAILS -> fail(a)
       :: operation[at] == WRITTEN -> end_of_write(a)
       :: operation[at] == ASKS -> create_fleet(a)
       :: operation[at] == ANSWERS -> answer(a)
       :: operation[at] == STARTS -> start(a, b, install_of[at])
       :: operation[at] == REGISTERS -> register(a)
       :: operation[at] == INITIALIZES -> initialize(a)
       :: operation[at] == DISRUPTS -> disrupt(a)
       :: operation[at] == DRAINS -> drain(a)
       :: operation[at] == GIVES_UP -> give_up(a)
       :: operation[at] == TERMINATES -> terminate(a, b)
       :: operation[at] == COLLECTS -> terminate_garbage(a, install_of[at])
       :: operation[at] == FINISHES -> finish(a)
       :: operation[at] == ADOPTS -> adopt(a, b, REGISTERED)
       :: operation[at] == TOUCHES -> touch(a)
       /* An instance that says that it is ours and that nobody here has launched. */
       :: operation[at] == STRAYS -> answered[b] = 1; start(a, b, install_of[at])
       /* A restored table: the claim's state, then its instance. */
       :: operation[at] == RESTORES -> state[a] = b; holds[a] = 0
       :: operation[at] == HOLDS -> holds[a] = b + 1
       :: operation[at] == RESTORES_EPOCH -> epoch[a] = b
       :: operation[at] == LOSES -> lose(a)
       :: operation[at] == RESTS -> must_be_settled()
       fi;
       at++
     }
  :: else -> break
  od;
  assert(!is_committing);
  printf("all of %d operations\n", at)
}

init {
  run run_of_all()
}
