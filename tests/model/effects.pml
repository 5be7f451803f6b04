/* The effects of the protocol: what is written to table `state`, and what is asked of EC2.

   Each effect asserts what must hold when it happens, then changes the table or EC2. An assertion that fails is a
   broken promise.

   A claim is an index below CLAIMS, an instance one below INSTANCES, a launch (a client token) one below LAUNCHES.
   `holds[c]` is the number of the claim's instance plus one, or 0. */

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

/* Table `state`. */
byte state[CLAIMS];
byte holds[CLAIMS];
byte token[CLAIMS];

/* EC2. */
byte ec2[INSTANCES];
byte launched_by[INSTANCES];
bit answered[LAUNCHES];

/* Never read by the protocol: what was once written, also where a restore has taken it back. */
byte claims_of[LAUNCHES];
bit once_in_service[INSTANCES];

#define is_waiting(c) (state[c] == PLANNED || state[c] == LAUNCHING)
#define is_final(c) (state[c] == GONE || state[c] == FAILED)
#define is_live(c) (state[c] != ABSENT && !is_final(c))
#define has(c, m) (is_live(c) && holds[c] == (m) + 1)

byte other;
bit found;

/* Whether a claim has the instance. */
inline look_for_holder(instance) {
  found = 0;
  other = 0;
  do
  :: other < CLAIMS -> found = (found || has(other, instance)); other++
  :: else -> break
  od;
  other = 0
}

/* Whether a claim of the instance's launch still waits for one. */
inline look_for_waiting(instance) {
  found = 0;
  other = 0;
  do
  :: other < CLAIMS -> found = (found || (is_waiting(other) && token[other] == launched_by[instance])); other++
  :: else -> break
  od;
  other = 0
}

/* One transaction: the epoch and new claims. */
inline commit(claim, launch) {
  d_step {
    assert(state[claim] == ABSENT);
    state[claim] = PLANNED;
    token[claim] = launch;
    holds[claim] = 0;
    claims_of[launch] = claims_of[launch] + 1
  }
}

/* The claim belongs to an invocation, which launches it now. */
inline lease(claim) {
  d_step { assert(state[claim] == PLANNED); state[claim] = LAUNCHING }
}

/* A claim that waits is written and goes on waiting: a new lease, a launch left for later, part of a larger write. */
inline wait(claim) {
  d_step { assert(state[claim] == LAUNCHING); skip }
}

/* A CreateFleet with the client token of launch `t`. Promise: a claim is written before an instance is asked for. */
inline create_fleet(launch) {
  d_step { assert(claims_of[launch] > 0); skip }
}

/* EC2 starts an instance for launch `t`. */
inline start(instance, launch) {
  d_step {
    assert(ec2[instance] == NONE);
    ec2[instance] = RUNNING;
    launched_by[instance] = launch
  }
}

/* EC2 has answered. Promise: a client token launches once. */
inline answer(launch) {
  d_step { assert(!answered[launch]); answered[launch] = 1 }
}

/* A claim gets an instance of its launch. Promise: no instance has two claims, no claim has two instances. */
inline assign(claim, instance) {
  d_step {
    assert(state[claim] == LAUNCHING && holds[claim] == 0);
    assert(ec2[instance] != NONE && launched_by[instance] == token[claim]);
    look_for_holder(instance);
    assert(!found);
    state[claim] = LAUNCHED;
    holds[claim] = instance + 1
  }
}

inline fail(claim) {
  d_step {
    assert(is_waiting(claim) || state[claim] == LAUNCHED || state[claim] == TERMINATING);
    state[claim] = FAILED
  }
}

/* The claim's Node is opened to pods. */
inline register(claim) {
  d_step { assert(state[claim] == LAUNCHED); state[claim] = REGISTERED; once_in_service[holds[claim] - 1] = 1 }
}

/* The claim's instance is to be ended. From now on nobody registers its node. */
inline give_up(claim) {
  d_step {
    assert(state[claim] == LAUNCHED || state[claim] == REGISTERED || state[claim] == INITIALIZED || state[claim] == DISRUPTING ||
           state[claim] == DRAINING);
    state[claim] = TERMINATING
  }
}

/* TerminateInstances for the instance of a claim. Promise: only what leaves is ended. */
inline terminate(claim, instance) {
  d_step {
    assert(holds[claim] == instance + 1 && (state[claim] == TERMINATING || is_final(claim)));
    ec2[instance] = ENDED
  }
}

/* TerminateInstances for an instance without a claim. Promise: no claim has it, none waits for it, and it was never in
   service. */
inline terminate_garbage(instance) {
  d_step {
    look_for_holder(instance);
    assert(!found);
    look_for_waiting(instance);
    assert(!found);
    assert(!once_in_service[instance]);
    ec2[instance] = ENDED
  }
}

inline finish(claim) {
  d_step {
    assert(state[claim] == LAUNCHED || state[claim] == REGISTERED || state[claim] == INITIALIZED || state[claim] == DISRUPTING ||
           state[claim] == DRAINING || state[claim] == TERMINATING);
    state[claim] = GONE
  }
}

/* A node in service gets a claim again. */
inline adopt(claim, instance, new_state) {
  d_step {
    assert(state[claim] == ABSENT && once_in_service[instance]);
    look_for_holder(instance);
    assert(!found);
    assert(new_state == REGISTERED || new_state == INITIALIZED);
    state[claim] = new_state;
    token[claim] = launched_by[instance];
    holds[claim] = instance + 1
  }
}

/* AWS or a person ends an instance. */
inline lose(instance) {
  d_step { assert(ec2[instance] != NONE); ec2[instance] = ENDED }
}
