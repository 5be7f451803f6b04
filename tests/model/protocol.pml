/* The protocol between the functions of an install, table `state` and EC2: every interleaving within the bounds below.

   README.md explains it step by step. A step is one effect: a read, a conditional write, a request to EC2. Any
   function may be invoked at any moment and may die before each of its steps, as often as it likes: that covers every
   message that is lost, late or delivered twice, and every lease that ends. So neither messages nor leases nor deaths
   are counted.

   A write on condition that is bound to fail changes nothing. Its function is sent back to the start as soon as another
   one writes, instead of when it tries. */

#ifndef INSTALLS
#define INSTALLS 2
#endif
#ifndef MOST
#define MOST 2        /* Claims of all installs together, over the whole time. */
#endif
#ifndef PODS
#define PODS 2        /* Pods of each install that need a node of their own. */
#endif
#ifndef RESTORES
#define RESTORES 1    /* Whether the table of the first install is restored once. */
#endif

/* An install has claims 0 and 1 before a restore of its table, 2 and 3 after it. */
#define CLAIMS 4
#define INSTANCES (INSTALLS * CLAIMS)

#include "effects.pml"

/* What a `schedule` invocation does next. */
#define IDLE 0         /* Read the epoch and the claims. */
#define LOOK 1         /* Read the cluster, and plan; `knows` is how many claims are in flight. */
#define COMMIT 2       /* Commit `knows` claims. */
#define OWN 3          /* Begin launch `on`, or see what became of it. */
#define RELAUNCH 4     /* Launch what is missing of launch `on`; `knows`: an instance may be there that is not seen. */
#define REQUEST 5      /* CreateFleet for launch `on`; `knows` as before. */
#define LATE_REQUEST 6 /* The same, when another invocation has written its claims since. */
#define SETTLE 7       /* Give the answer's instances to the claims of launch `on`. */

byte left = MOST;
byte node_claim[INSTANCES];

/* Instances and launches of install i have the numbers of its claims, plus those of the installs before. */
#define mine(c) (i * CLAIMS + (c))
#ifdef TOKEN_WITHOUT_INSTALL
#define launch_of(c) (c)
#else
#define launch_of(c) mine(c)
#endif
#define first (2 * restored)
#define waits(c) is_awaited(launch_of(c))
#define in_flight(c) (state[c] >= PLANNED && state[c] <= LAUNCHED)
#define claims_in_flight (in_flight(0) + in_flight(1) + in_flight(2) + in_flight(3))
#define leaves(m) (is_leaving(0, m) || is_leaving(1, m) || is_leaving(2, m) || is_leaving(3, m))
#define is_leaving(c, m) (state[c] == TERMINATING && holds[c] == (m) + 1)
#define serves(m) (ec2[m] == RUNNING && once_in_service[m] && !leaves(m))
#define nodes_in_service (serves(mine(0)) + serves(mine(1)) + serves(mine(2)) + serves(mine(3)))
#define pods_pending (wanted - nodes_in_service)
#define is_new(c) (state[c] == ABSENT && !written[launch_of(c)])
#define free_claims (is_new(first) + is_new(first + 1))
#define may_plan (left > 0 && free_claims > 0)

/* An instance of the launch that no claim of this install has. */
#define is_of(m, t) (ec2[m] != NONE && launched_by[m] == (t))
#define is_held(m) (adopted[m] || has(0, m) || has(1, m) || has(2, m) || has(3, m))
#define is_seen(m, t) (is_of(m, t) && ec2[m] == RUNNING)
#define is_free(m, t) (is_of(m, t) && !is_held(m))

#define is_awaited(t) (in_launch(0, t) || in_launch(1, t) || in_launch(2, t) || in_launch(3, t))
#define claims_of(t) (in_launch(0, t) + in_launch(1, t) + in_launch(2, t) + in_launch(3, t))
/* As many instances of the launch as claims wait have ended. */
#define has_ended(t) ((is_free(t, t) && ec2[t] == ENDED) + (is_free(t + 1, t) && ec2[t + 1] == ENDED) >= claims_of(t))
#define is_planned(t) ((state[0] == PLANNED && token[0] == (t)) || (state[1] == PLANNED && token[1] == (t)) || \
                       (state[2] == PLANNED && token[2] == (t)) || (state[3] == PLANNED && token[3] == (t)))
/* Claims 0 and 1, or 2 and 3, may be of one launch, which has the first one's number. */
#define is_for_two(t) (pair[(t) % CLAIMS])
#define is_garbage(m) (ec2[m] == RUNNING && is_own(m) && !is_held(m) && !is_awaited(launched_by[m]))
#ifdef GARBAGE_OF_ALL_INSTALLS
#define is_own(m) (true)
#else
#define is_own(m) (tag[m] == i + 1)
#endif
#ifdef RESTORE_WITHOUT_ADOPTION
#define is_collected(m) (is_garbage(m) && !once_in_service[m])
#else
#define is_collected(m) is_garbage(m)
#endif
#define held(c) (holds[c] - 1)
#define runs(c) (ec2[held(c)] == RUNNING)
#define is_visited(c) (state[c] == LAUNCHED || state[c] == TERMINATING || (state[c] == REGISTERED && !runs(c)))
#define is_idle (does[0] == IDLE && does[1] == IDLE && cleans == 0)
#define is_quiet (is_idle && !waits(0) && !waits(1) && !waits(2) && !waits(3) && \
                  !is_visited(0) && !is_visited(1) && !is_visited(2) && !is_visited(3) && \
                  !is_collected(mine(0)) && !is_collected(mine(1)) && !is_collected(mine(2)) && !is_collected(mine(3)))

/* Whoever else is about to write claims of the launch cannot do so any more. */
inline others_lose(launch) {
  peer = 1 - d;
  if
  :: on[peer] == (launch) && (does[peer] == OWN || does[peer] == RELAUNCH || does[peer] == SETTLE) -> forget(peer)
  :: on[peer] == (launch) && does[peer] == REQUEST -> does[peer] = LATE_REQUEST; knows[peer] = 0
  :: else
  fi
}

inline epoch_moves() {
  peer = 1 - d;
  if
#ifndef COMMIT_WITHOUT_EPOCH
  :: does[peer] == LOOK || does[peer] == COMMIT -> forget(peer)
#endif
  :: else
  fi
}

inline forget(who) {
  does[who] = IDLE; on[who] = 0; knows[who] = 0
}

inline next(step, launch, fact) {
  does[d] = step; on[d] = launch; knows[d] = fact
}

inline lease_all(launch) {
  other = 0;
  do
  :: other < CLAIMS && in_launch(other, launch) -> lease(other); other++
  :: other < CLAIMS && !in_launch(other, launch) -> other++
  :: else -> break
  od;
  end_of_write(launch)
}

inline fail_all(launch) {
  other = 0;
  do
  :: other < CLAIMS && in_launch(other, launch) -> fail(other); other++
  :: other < CLAIMS && !in_launch(other, launch) -> other++
  :: else -> break
  od;
  end_of_write(launch)
}

/* Gives the first of the launch's instances among those known, 1 for its first and 2 for its second, to a claim that
   waits. */
inline assign_one(claim, launch) {
  if
  :: in_launch(claim, launch) && (known & 1) && is_free(launch, launch) -> assign(claim, launch, i); known = known & 2
  :: in_launch(claim, launch) && !((known & 1) && is_free(launch, launch)) &&
     (known & 2) && is_free(launch + 1, launch) ->
     assign(claim, launch + 1, i);
     known = known & 1
  :: else
  fi
}

/* One transaction for all claims of the launch that wait. */
inline settle_all(launch, may_be_more) {
  c = 0;
  do
  :: c < CLAIMS ->
     if
     :: in_launch(c, launch) ->
        assign_one(c, launch);
        if
        :: in_launch(c, launch) && may_be_more -> wait(c)
        :: in_launch(c, launch) && !(may_be_more) -> fail(c)
        :: else
        fi
     :: else
     fi;
     c++
  :: else -> break
  od;
  c = 0;
  end_of_write(launch)
}

#ifdef SETTLING_WITHOUT_CLAIMS
/* Instances are given to the claims of the launch in their order, by one write for each claim: one that another has
   written fails, the others do not. */
inline settle_each(launch) {
  c = launch % CLAIMS;
  if
  :: (known & 1) && is_of(launch, launch) && in_launch(c, launch) -> assign(c, launch, i)
  :: (known & 1) && is_of(launch, launch) && !in_launch(c, launch)
  :: !((known & 1) && is_of(launch, launch)) && (known & 2) && is_of(launch + 1, launch) && in_launch(c, launch) ->
     assign(c, launch + 1, i)
  :: else
  fi;
  if
  :: (known & 1) && is_of(launch, launch) && (known & 2) && is_of(launch + 1, launch) && in_launch(c + 1, launch) ->
     assign(c + 1, launch + 1, i)
  :: else
  fi;
  in_write[c] = 0; in_write[c + 1] = 0;
  c = 0; known = 0
}
#endif

/* The next step of `schedule` invocation d. */
inline decide() {
  if
  :: does[d] != IDLE -> forget(d)   /* It dies. */

  :: does[d] == IDLE && waits(0) -> next(OWN, launch_of(0), 0)
  :: does[d] == IDLE && waits(1) -> next(OWN, launch_of(1), 0)
  :: does[d] == IDLE && waits(2) -> next(OWN, launch_of(2), 0)
  :: does[d] == IDLE && waits(3) -> next(OWN, launch_of(3), 0)
  :: does[d] == IDLE && may_plan && pods_pending > 0 -> next(LOOK, 0, claims_in_flight)

  :: does[d] == LOOK ->
     if
     :: pods_pending > knows[d] -> d_step { known = pods_pending - knows[d]; next(COMMIT, 0, known); known = 0 }
     :: else -> forget(d)
     fi;
#ifdef LAUNCH_BEFORE_COMMIT
     d_step { create_fleet(launch_of(first)) }
#endif

  :: does[d] == COMMIT ->
     known = knows[d];
     if
     :: known > free_claims -> known = free_claims
     :: else
     fi;
     if
     :: known > left -> known = left
     :: else
     fi;
     if
     :: known == 0 -> forget(d)
     :: else ->
        /* Promise: decisions are serialised, so no pod gets a second claim. */
        assert(wanted >= nodes_in_service + claims_in_flight + known);
        c = first + !is_new(first);
        commit(c, launch_of(c));
        left--;
        next(OWN, launch_of(c), 0);
        if
        :: known == 2 -> commit(c + 1, launch_of(c)); pair[c] = 1; left--   /* One launch. */
        :: known == 2 -> commit(c + 1, launch_of(c + 1)); left--   /* Two. */
        :: known == 1
        fi;
        epoch_moves()
     fi;
     c = 0; known = 0

  /* Nothing was ever asked of EC2. */
  :: does[d] == OWN && is_planned(on[d]) -> d_step { lease_all(on[d]); others_lose(on[d]); does[d] = REQUEST }
  :: does[d] == OWN && is_planned(on[d]) -> d_step { fail_all(on[d]); others_lose(on[d]); forget(d) }   /* Too late. */

  /* Describe the launch's instances: all of them, or only some while EC2 lags behind. */
  :: does[d] == OWN && !is_planned(on[d]) ->
     if
     :: known = 3; knows[d] = 0
     :: known = 3; knows[d] = 1
     :: is_seen(on[d], on[d]) -> known = 2; knows[d] = 1
     :: is_seen(on[d] + 1, on[d]) -> known = 1; knows[d] = 1
     :: is_seen(on[d], on[d]) || is_seen(on[d] + 1, on[d]) -> known = 0; knows[d] = 1
     fi;
     d_step {
       known = (known & (is_seen(on[d], on[d]) + 2 * is_seen(on[d] + 1, on[d])));
       if
#ifdef SETTLING_WITHOUT_CLAIMS
       :: known -> settle_each(on[d])
#else
       :: known -> settle_all(on[d], 1); others_lose(on[d])
#endif
       :: else
       fi;
       known = 0;
       look_for_waiting(on[d]);
       if
       :: found -> does[d] = RELAUNCH
       :: else -> forget(d)
       fi
     }

  :: does[d] == RELAUNCH -> d_step { lease_all(on[d]); others_lose(on[d]); does[d] = REQUEST }
  :: does[d] == RELAUNCH && (!knows[d] || has_ended(on[d])) ->   /* Too late. */
     d_step { fail_all(on[d]); others_lose(on[d]); forget(d) }

  :: does[d] == REQUEST || does[d] == LATE_REQUEST ->
     d_step { create_fleet(on[d]); t = on[d] };
     if
     :: answered[t]
#ifdef NO_CLIENT_TOKEN
     :: answered[t] -> answer(t)
#endif
     :: !answered[t] -> answer(t)   /* EC2 has nothing to give. */
     :: !answered[t] -> answer(t); start(t, t, i)
     :: !answered[t] && is_for_two(t) -> answer(t); start(t + 1, t, i)
     :: !answered[t] && is_for_two(t) -> answer(t); start(t, t, i); start(t + 1, t, i)
     :: !answered[t] && does[d] == REQUEST && !knows[d] -> does[d] = RELAUNCH   /* Refused. */
     fi;
     t = 0;
     if
     :: does[d] == RELAUNCH
     :: does[d] == REQUEST && answered[on[d]] -> does[d] = SETTLE; knows[d] = 0
     :: does[d] != RELAUNCH -> forget(d)   /* The answer is lost, or of no use any more. */
     fi

#ifdef SETTLING_WITHOUT_CLAIMS
  :: does[d] == SETTLE -> d_step { known = 3; settle_each(on[d]); forget(d) }
#else
  :: does[d] == SETTLE -> d_step { known = 3; settle_all(on[d], 0); known = 0; others_lose(on[d]); forget(d) }
#endif
  :: else
  fi
}


/* The next step of `lifecycle` for claim c. What it reads of a claim and writes on condition is one step. */
inline visit(claim) {
  if
  :: state[claim] == LAUNCHED && runs(claim) -> register(claim); node_claim[held(claim)] = (claim) + 1
  :: state[claim] == LAUNCHED && !once_in_service[held(claim)] -> give_up(claim)
  :: state[claim] == LAUNCHED && !runs(claim) -> fail(claim); in_write[claim] = 0
  :: state[claim] == LAUNCHED && !runs(claim) -> give_up(claim)
  :: state[claim] == REGISTERED && !runs(claim) -> finish(claim)
  :: state[claim] == REGISTERED -> give_up(claim)   /* It has been drained. */
  :: state[claim] == TERMINATING && runs(claim) -> terminate(claim, held(claim))
  :: state[claim] == TERMINATING && !runs(claim) -> finish(claim)
  :: state[claim] == TERMINATING && !runs(claim) && !once_in_service[held(claim)] -> fail(claim); in_write[claim] = 0
  :: else
  fi
}

/* `lifecycle` looks for an instance without a claim, and later ends it or adopts its node. */
inline collect() {
  if
  :: cleans == 0 && is_collected(mine(0)) -> cleans = mine(0) + 1
  :: cleans == 0 && is_collected(mine(1)) -> cleans = mine(1) + 1
  :: cleans == 0 && is_collected(mine(2)) -> cleans = mine(2) + 1
  :: cleans == 0 && is_collected(mine(3)) -> cleans = mine(3) + 1
#ifdef GARBAGE_OF_ALL_INSTALLS
  :: cleans == 0 && is_collected(INSTANCES - 1 - mine(3)) -> cleans = INSTANCES - mine(3)
#endif
  :: cleans > 0 ->
     d_step {
       m = cleans - 1;
       cleans = 0;
       if
       :: ec2[m] == ENDED
       :: ec2[m] == RUNNING && !once_in_service[m] -> terminate_garbage(m, i)
       :: ec2[m] == RUNNING && once_in_service[m] ->
          c = node_claim[m] - 1;
          if
          :: state[c] == ABSENT || state[c] == FAILED -> adopt(c, m, REGISTERED)
          :: else -> adopted[m] = 1   /* Its claim's name is taken: it gets one of its own. */
          fi;
          c = 0
       fi;
       m = 0
     }
  :: else
  fi
}

/* A claim as it was when its launch had begun, or later. */
inline begun_before(claim) {
  if
  :: true
  :: state[claim] > LAUNCHING -> state[claim] = LAUNCHING; holds[claim] = 0
  :: state[claim] > LAUNCHED && holds[claim] > 0 -> state[claim] = LAUNCHED
  :: state[claim] > REGISTERED && holds[claim] > 0 && once_in_service[held(claim)] -> state[claim] = REGISTERED
  fi
}

inline back(claim, before) {
  if
  :: state[claim] != ABSENT -> state[claim] = before; holds[claim] = 0
  :: else
  fi
}

/* The table is as it was at any earlier moment. */
inline restore() {
  if
  :: back(0, ABSENT); back(1, ABSENT)
  :: !pair[0] && state[1] != ABSENT -> back(1, ABSENT); begun_before(0)
  :: !pair[0] && state[1] != ABSENT -> back(1, ABSENT); back(0, PLANNED)
  :: pair[0] -> back(0, PLANNED); back(1, PLANNED)
  :: !pair[0] -> back(0, PLANNED); begun_before(1)
  :: !pair[0] -> begun_before(0); back(1, PLANNED)
  :: begun_before(0); begun_before(1)
  fi;
  restored = 1
}

inline end_of_step() {
  d_step {
    /* Invocations are alike: they have an order, so that fewer states differ. */
    if
    :: does[0] > does[1] || (does[0] == does[1] && (on[0] > on[1] || (on[0] == on[1] && knows[0] > knows[1]))) ->
       swap(does[0], does[1]); swap(on[0], on[1]); swap(knows[0], knows[1])
    :: else
    fi;
    if
    :: is_quiet -> must_be_settled(0); must_be_settled(1); must_be_settled(2); must_be_settled(3)
    :: else
    fi;
    d = 0; c = 0; t = 0; m = 0; peer = 0; known = 0; other = 0; found = 0
  }
}
inline swap(one, two) { other = one; one = two; two = other }

/* When nothing is left to do, every instance has one claim or has ended, and every claim its instance. */
inline must_be_settled(claim) {
  assert(is_held(mine(claim)) || ec2[mine(claim)] != RUNNING);
  assert(!is_live(claim) || (holds[claim] > 0 && runs(claim)))
}

proctype install(byte i) {
  byte state[CLAIMS], holds[CLAIMS], token[CLAIMS];
  bit written[INSTANCES], in_write[CLAIMS], adopted[INSTANCES], pair[CLAIMS];
  byte does[2], on[2], knows[2];
  byte cleans, wanted;
  bit restored;
  byte d, c, t, m, peer, known;   /* Scratch; 0 between steps. */

  do
  :: atomic { d = 0; decide(); end_of_step() }
  :: atomic { d = 1; decide(); end_of_step() }
  :: atomic { c = 0; visit(0); end_of_step() }
  :: atomic { c = 0; visit(1); end_of_step() }
  :: atomic { c = 0; visit(2); end_of_step() }
  :: atomic { c = 0; visit(3); end_of_step() }
  :: atomic { c = 0; collect(); end_of_step() }
  :: atomic { wanted < PODS -> wanted++ }
  /* AWS ends an instance. */
  :: atomic { ec2[mine(0)] == RUNNING -> lose(mine(0)); end_of_step() }
  :: atomic { ec2[mine(1)] == RUNNING -> lose(mine(1)); end_of_step() }
  :: atomic { ec2[mine(2)] == RUNNING -> lose(mine(2)); end_of_step() }
  :: atomic { ec2[mine(3)] == RUNNING -> lose(mine(3)); end_of_step() }
  /* People restore the table while the install is paused: none of its invocations is under way. */
  :: atomic { i == 0 && RESTORES && !restored && is_idle -> restore(); end_of_step() }
  od
}

init {
  byte n;
  atomic {
    do
    :: n < INSTALLS -> run install(n); n++
    :: else -> break
    od;
    n = 0
  }
}
