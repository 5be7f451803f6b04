/* The effects of the protocol: what is written to table `state`, and what is asked of EC2.

   Each effect asserts what must hold when it happens, then changes the table or EC2. An assertion that fails is a
   broken promise. `protocol.pml` lets functions make these effects in every order that they can. `recorded.pml` makes
   those of a recorded run, in their order.

   Who includes this file declares CLAIMS and INSTANCES, and for each install a table: `state`, `holds`, `token`,
   `written` and `in_write`. Claims are numbered within their install. Instances and launches (client tokens) are
   numbered within the account, so that installs could mistake each other's. `holds[c]` is the number of the claim's
   instance plus one, or 0. */

#define ABSENT 0
#define PLANNED 1
#define LAUNCHING 2
#define LAUNCHED 3
#define REGISTERED 4
#define INITIALIZED 5
#define DISRUPTING 6
#define DRAINING 7
#define TERMINATING 8
#define GONE 9
#define FAILED 10

#define NONE 0
#define RUNNING 1
#define ENDED 2

#ifndef NUMBER
#define NUMBER byte
#endif

/* EC2: one account for all installs. `tag` is the install of an instance plus one. */
byte ec2[INSTANCES + 1];
NUMBER launched_by[INSTANCES + 1];
byte tag[INSTANCES + 1];
bit answered[INSTANCES];

/* Known to no function: whether a node was ever open to pods. */
bit once_in_service[INSTANCES];

#define is_waiting(c) (state[c] == PLANNED || state[c] == LAUNCHING)
#define in_launch(c, t) (is_waiting(c) && token[c] == (t))
#define is_final(c) (state[c] == GONE || state[c] == FAILED)
#define is_live(c) (state[c] != ABSENT && !is_final(c))
#define has(c, m) (is_live(c) && holds[c] == (m) + 1)

/* Scratch; 0 between steps. */
NUMBER other;
byte found;

/* Whether a claim of this install has the instance. */
inline look_for_holder(instance) {
  found = 0;
  other = 0;
  do
  :: other < CLAIMS -> found = (found || has(other, instance)); other++
  :: else -> break
  od
}

/* Whether a claim of this install and launch still waits for an instance. */
inline look_for_waiting(launch) {
  found = 0;
  other = 0;
  do
  :: other < CLAIMS -> found = (found || in_launch(other, launch)); other++
  :: else -> break
  od
}

/* A new claim. All claims of a commit and the epoch are one transaction. */
inline commit(claim, launch) {
  assert(state[claim] == ABSENT);
  state[claim] = PLANNED;
  token[claim] = launch;
  holds[claim] = 0;
  written[launch] = 1
}

/* One claim of a launch as the launch is begun, by its first owner or by another. */
inline lease(claim) {
  assert(is_waiting(claim));
  state[claim] = LAUNCHING;
  in_write[claim] = 1
}

/* A claim that goes on waiting is written too: a launch left for later, or part of a larger write. */
inline wait(claim) {
  assert(state[claim] == LAUNCHING);
  in_write[claim] = 1
}

/* A claim gets an instance of its launch. Promise: no instance has two claims, no claim has two instances, and no
   install has another's. */
inline assign(claim, instance, owner) {
  assert(state[claim] == LAUNCHING && holds[claim] == 0);
  assert(ec2[instance] != NONE && launched_by[instance] == token[claim] && tag[instance] == (owner) + 1);
  look_for_holder(instance);
  assert(!found);
  state[claim] = LAUNCHED;
  holds[claim] = (instance) + 1;
  in_write[claim] = 1
}

inline fail(claim) {
  assert(is_waiting(claim) || state[claim] == LAUNCHED || state[claim] == TERMINATING);
  state[claim] = FAILED;
  in_write[claim] = 1
}

/* The end of a write to claims of a launch. Promise: every claim that still waits takes part, so that of two functions
   which give away instances one is told that it came second. */
inline end_of_write(launch) {
  other = 0;
  do
  :: other < CLAIMS ->
     assert(state[other] != LAUNCHING || token[other] != (launch) || in_write[other]);
     in_write[other] = 0;
     other++
  :: else -> break
  od
}

/* CreateFleet with a client token. Promise: a claim is written before an instance is asked for, and begun. */
inline create_fleet(launch) {
  assert(written[launch]);
  other = 0;
  do
  :: other < CLAIMS -> assert(state[other] != PLANNED || token[other] != (launch)); other++
  :: else -> break
  od;
  other = 0
}

/* EC2 has launched for a client token. Promise: it does so once. */
inline answer(launch) {
  assert(!answered[launch]);
  answered[launch] = 1
}

/* EC2 starts an instance for a client token. */
inline start(instance, launch, owner) {
  assert(ec2[instance] == NONE && answered[launch]);
  ec2[instance] = RUNNING;
  launched_by[instance] = launch;
  tag[instance] = (owner) + 1
}

/* A claim becomes Registered, and its Node is opened to pods. */
inline register(claim) {
  assert(state[claim] == LAUNCHED);
  state[claim] = REGISTERED;
  once_in_service[holds[claim] - 1] = 1
}

inline initialize(claim) {
  assert(state[claim] == REGISTERED || state[claim] == DISRUPTING);
  state[claim] = INITIALIZED
}

/* Its node is to leave, or may yet stay. */
inline disrupt(claim) {
  assert(state[claim] == REGISTERED || state[claim] == INITIALIZED);
  state[claim] = DISRUPTING
}

inline drain(claim) {
  assert(state[claim] >= LAUNCHED && state[claim] <= DISRUPTING);
  state[claim] = DRAINING
}

/* The claim's instance is to be ended. From now on nobody registers its node. */
inline give_up(claim) {
  assert(state[claim] >= LAUNCHED && state[claim] <= DRAINING);
  state[claim] = TERMINATING
}

/* TerminateInstances for the instance of a claim. Promise: only what leaves is ended. */
inline terminate(claim, instance) {
  assert(holds[claim] == (instance) + 1 && (state[claim] == TERMINATING || is_final(claim)));
  ec2[instance] = ENDED
}

/* TerminateInstances for an instance without a claim. Promise: it is the install's own, no claim has it, none waits for
   it, and it was never in service. */
inline terminate_garbage(instance, owner) {
  assert(tag[instance] == (owner) + 1);
  look_for_holder(instance);
  assert(!found);
  look_for_waiting(launched_by[instance]);
  assert(!found);
  assert(!once_in_service[instance]);
  ec2[instance] = ENDED
}

/* Something else about a claim is written: a deadline, a mark, its network. */
inline touch(claim) {
  assert(state[claim] >= LAUNCHED && state[claim] <= TERMINATING)
}

inline finish(claim) {
  assert(state[claim] >= LAUNCHED && state[claim] <= TERMINATING);
  state[claim] = GONE
}

/* A node in service gets a claim again. */
inline adopt(claim, instance, new_state) {
  assert((state[claim] == ABSENT || state[claim] == FAILED) && once_in_service[instance]);
  look_for_holder(instance);
  assert(!found);
  assert(new_state == REGISTERED || new_state == INITIALIZED);
  state[claim] = new_state;
  token[claim] = launched_by[instance];
  holds[claim] = (instance) + 1
}

/* AWS or a person ends an instance. */
inline lose(instance) {
  assert(ec2[instance] != NONE);
  ec2[instance] = ENDED
}
