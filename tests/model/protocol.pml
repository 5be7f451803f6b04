/* The protocol between the functions of an install, table `state` and EC2: every interleaving within the bounds below.

   docs/protocol.md explains it step by step. An install has DECIDERS `schedule` invocations at once, one `lifecycle`
   invocation and two pods that need a node each. It may make two claims, and two more after a restore of its table. */

#ifndef INSTALLS
#define INSTALLS 1
#endif
#ifndef DECIDERS
#define DECIDERS 2
#endif
#ifndef PODS
#define PODS 2
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef LOST
#define LOST 1
#endif
#ifndef DOUBLED
#define DOUBLED 1
#endif
#ifndef RESTORES
#define RESTORES 1
#endif
#ifndef INTERRUPTIONS
#define INTERRUPTIONS 1
#endif

/* Claim, token and instance numbers of an install: two before a restore, two after it. */
#define PER_INSTALL 4
#define CLAIMS (INSTALLS * PER_INSTALL)
#define INSTANCES CLAIMS
#define LAUNCHES CLAIMS

#include "effects.pml"

/* A party is an invocation that reads claims and writes them on condition that nobody has written them since. */
#define PARTIES (INSTALLS * (DECIDERS + 1))
#define fresh(p, c) unchanged[(p) * CLAIMS + (c)]

bit unchanged[PARTIES * CLAIMS];
bit epoch_unchanged[PARTIES];

byte pod[CLAIMS];
byte serves[INSTANCES];
bit wanted[INSTALLS * 2];
byte hints[INSTALLS];
byte busy[INSTALLS];
byte after_restore[INSTALLS];
byte node_claim[INSTANCES];
byte saved_state[2];
byte saved_holds[2];

byte crashes = CRASHES;
byte lost = LOST;
byte doubled = DOUBLED;
byte restores = RESTORES;
byte interruptions = INTERRUPTIONS;

#define first(i) ((i) * PER_INSTALL + after_restore[i] * 2)
#define is_serving(c, i, p) (pod[c] == (p) + 1 && state[c] >= PLANNED && state[c] <= DISRUPTING && \
                             (holds[c] == 0 || ec2[holds[c] - 1] != ENDED))
#define has_claim(i, p) (is_serving((i) * 4, i, p) || is_serving((i) * 4 + 1, i, p) || \
                         is_serving((i) * 4 + 2, i, p) || is_serving((i) * 4 + 3, i, p))
#define runs_on(m, p) (serves[m] == (p) + 1 && ec2[m] == RUNNING)
#define is_pending(i, p) (wanted[(i) * 2 + (p)] && !runs_on((i) * 4, p) && !runs_on((i) * 4 + 1, p) && \
                          !runs_on((i) * 4 + 2, p) && !runs_on((i) * 4 + 3, p))
#define in_launch(c, t) (is_waiting(c) && token[c] == (t))
#define waits(t) (in_launch(t, t) || in_launch(next(t), t))
#define next(c) ((c) + 1 - ((c) % 2))

/* Claims of launch `t` are number t and, if the launch is of two, the next one; its instances likewise. */
#define may_write(p, t) ((!in_launch(t, t) || fresh(p, t)) && (!in_launch(next(t), t) || fresh(p, next(t))))
#define is_held(m) (holds_it(m, (m) - (m) % 2) || holds_it(m, (m) - (m) % 2 + 1))
#define holds_it(m, c) (state[c] != ABSENT && state[c] != GONE && holds[c] == (m) + 1)
#define is_of(m, t) (ec2[m] != NONE && launched_by[m] == (t))

/* Whoever read the claim before cannot write it any more, except the writer itself. */
inline wrote(party, claim) {
  d_step {
    other = 0;
    do
    :: other < PARTIES ->
       if
       :: other != (party) -> fresh(other, claim) = 0
       :: else
       fi;
       other++
    :: else -> break
    od;
    other = 0
  }
}

inline read_claims(party, install) {
  d_step { fresh(party, install * 4) = 1; fresh(party, install * 4 + 1) = 1; fresh(party, install * 4 + 2) = 1; fresh(party, install * 4 + 3) = 1 }
}

inline forget_reads(party, install) {
  d_step {
    fresh(party, install * 4) = 0; fresh(party, install * 4 + 1) = 0; fresh(party, install * 4 + 2) = 0; fresh(party, install * 4 + 3) = 0;
    epoch_unchanged[party] = 0
  }
}

inline epoch_moves(install) {
  d_step {
    other = 0;
    do
    :: other <= DECIDERS -> epoch_unchanged[install * (DECIDERS + 1) + other] = 0; other++
    :: else -> break
    od;
    other = 0
  }
}

/* A write of one claim of the launch, if it still waits: all of them are written in one transaction. */
inline lease_if_waiting(party, claim, launch) {
  if
  :: in_launch(claim, launch) && state[claim] == PLANNED -> lease(claim); wrote(party, claim)
  :: in_launch(claim, launch) && state[claim] == LAUNCHING -> wait(claim); wrote(party, claim)
  :: else
  fi
}

inline wait_if_waiting(party, claim, launch) {
  if
  :: in_launch(claim, launch) -> wait(claim); wrote(party, claim)
  :: else
  fi
}

inline fail_if_waiting(party, claim, launch) {
  if
  :: in_launch(claim, launch) -> fail(claim); wrote(party, claim)
  :: else
  fi
}

/* The claim gets the first of these instances that no claim has; `m0` and `m1` say whether they are known. */
inline assign_if_waiting(party, claim, launch, m0, m1) {
  if
  :: in_launch(claim, launch) && m0 && is_of(launch, launch) -> assign(claim, launch); m0 = 0; wrote(party, claim)
  :: in_launch(claim, launch) && !(m0 && is_of(launch, launch)) && m1 && is_of(next(launch), launch) -> assign(claim, next(launch)); m1 = 0; wrote(party, claim)
  :: else
  fi
}

inline plan_for(claim, launch, install, demand) {
  d_step {
    assert(!has_claim(install, demand));   /* Promise: decisions are serialised, so no pod gets a second claim. */
    commit(claim, launch);
    pod[claim] = demand + 1
  }
}

#define CRASH :: crashes > 0 -> crashes--; goto over

/* One `schedule` invocation after the other. */
proctype decider(byte i; byte p) {
  byte t;
  bit m0, m1, need0, need1, tried, from_answer;

idle:
  atomic {
    hints[i] > 0;
    if
    :: hints[i]--
    :: doubled > 0 -> doubled--   /* The message is delivered again. */
    fi;
    busy[i]++
  }
round:
  skip;
  /* The epoch and the claims. */
  atomic {
    read_claims(p, i);
    epoch_unchanged[p] = 1;
    need0 = !has_claim(i, 0);
    need1 = !has_claim(i, 1);
    t = 255;
    if
    :: waits(i * 4) -> t = i * 4
    :: waits(i * 4 + 1) -> t = i * 4 + 1
    :: waits(i * 4 + 2) -> t = i * 4 + 2
    :: waits(i * 4 + 3) -> t = i * 4 + 3
    :: true   /* Launches that wait have an owner that may be alive. */
    fi;
    if
    CRASH
    :: t != 255 -> goto resume
    :: t == 255
    fi
  }
  /* The cluster; then the plan, which is a pure function of what was read. */
  atomic {
    need0 = need0 && is_pending(i, 0);
    need1 = need1 && is_pending(i, 1);
    if
    CRASH
    :: !need0 && !need1 -> goto over
    :: need0 || need1
    fi
  }
#ifdef LAUNCH_BEFORE_COMMIT
  create_fleet(first(i));
#endif
  atomic {
    if
#ifdef COMMIT_WITHOUT_EPOCH
    :: false
    :: true ->
#else
    :: !epoch_unchanged[p] -> goto round
    :: epoch_unchanged[p] ->
#endif
       if
       :: claims_of[first(i)] == 0 ->
          t = first(i);
          if
          :: need0 -> plan_for(t, t, i, 0)
          :: !need0 -> plan_for(t, t, i, 1)
          fi;
          fresh(p, t) = 1;
          if
          :: need0 && need1 -> plan_for(t + 1, t, i, 1); fresh(p, t + 1) = 1
          :: else
          fi
       :: claims_of[first(i)] == 1 && claims_of[first(i) + 1] == 0 ->
          t = first(i) + 1;
          if
          :: need0 -> plan_for(t, t, i, 0)
          :: !need0 -> plan_for(t, t, i, 1)
          fi;
          fresh(p, t) = 1
       :: else -> goto over   /* The bound of claims is reached. */
       fi;
       epoch_moves(i)
    fi;
    tried = 0;
    if
    CRASH
    :: goto launch
    fi
  }

resume:
  skip;
  if
  :: state[t] == PLANNED || (state[t] != LAUNCHING && state[next(t)] == PLANNED) ->
     tried = 0;
     if
     :: goto launch
     :: goto fail_rest   /* Too late, or its EC2NodeClass is gone. */
     fi
  :: else
  fi;
  /* Describe the launch's instances: all of them, or only some while EC2 lags behind. */
  atomic {
    m0 = is_of(t, t) && ec2[t] == RUNNING;
    m1 = t % 2 == 0 && is_of(next(t), t) && ec2[next(t)] == RUNNING;
    tried = 0;
    if
    :: true
    :: m0 -> m0 = 0; tried = 1
    :: m1 -> m1 = 0; tried = 1
    :: m0 && m1 -> m0 = 0; m1 = 0; tried = 1
    fi;
    from_answer = 0;
    if
    CRASH
    :: goto settle
    fi
  }

launch:
  skip;
  atomic {
    if
    :: may_write(p, t) && waits(t) -> lease_if_waiting(p, t, t); lease_if_waiting(p, next(t), t)
    :: else -> goto round
    fi;
    if
    CRASH
    :: true
    fi
  }
  atomic {
    create_fleet(t);
    if
    :: goto pending   /* EC2 asked to slow down, or did not answer. */
#ifdef NO_CLIENT_TOKEN
    :: true ->
       answer(t);
#else
    :: answered[t]
    :: !answered[t] ->
       answer(t);
#endif
       if
       :: true
       :: start(t, t)
       :: claims_of[t] == 2 -> start(next(t), t)
       :: claims_of[t] == 2 -> start(t, t); start(next(t), t)
       fi
    :: !answered[t] ->   /* Refused. */
       if
       :: tried -> goto pending
       :: !tried -> goto fail_rest
       fi
    fi;
    if
    :: m0 = is_of(t, t); m1 = t % 2 == 0 && is_of(next(t), t)
    :: goto pending   /* The answer is lost. */
    fi;
    from_answer = 1;
    if
    CRASH
    :: true
    fi
  }

settle:
  skip;
#ifdef SETTLING_WITHOUT_CLAIMS
  /* One write for each claim. */
  if
  :: m0 && is_held(t) -> m0 = 0
  :: else
  fi;
  if
  :: m1 && is_held(next(t)) -> m1 = 0
  :: else
  fi;
  if
  :: atomic { m0 && in_launch(t, t) && fresh(p, t) -> assign(t, t); wrote(p, t); m0 = 0 }
  :: atomic { !m0 && m1 && in_launch(t, t) && fresh(p, t) -> assign(t, next(t)); wrote(p, t); m1 = 0 }
  :: else
  fi;
  if
  :: atomic { m1 && in_launch(next(t), t) && fresh(p, next(t)) -> assign(next(t), next(t)); wrote(p, next(t)); m1 = 0 }
  :: else
  fi;
  goto over;
#endif
  atomic {
    if
    :: !may_write(p, t) || !waits(t) -> goto round
    :: else
    fi;
    if
    :: m0 && is_held(t) -> m0 = 0
    :: else
    fi;
    if
    :: m1 && is_held(next(t)) -> m1 = 0
    :: else
    fi;
    assign_if_waiting(p, t, t, m0, m1);
    assign_if_waiting(p, next(t), t, m0, m1);
    m0 = 0;
    m1 = 0;
    if
    :: from_answer -> fail_if_waiting(p, t, t); fail_if_waiting(p, next(t), t)
    :: else -> wait_if_waiting(p, t, t); wait_if_waiting(p, next(t), t)
    fi;
    if
    :: !waits(t) -> goto round
    :: else
    fi;
    if
    CRASH
    :: goto launch
    :: goto fail_rest
    :: goto over
    fi
  }

fail_rest:
  skip;
  atomic {
    if
    :: may_write(p, t) && waits(t) -> fail_if_waiting(p, t, t); fail_if_waiting(p, next(t), t); goto round
    :: else -> goto round
    fi
  }

pending:
  skip;
  atomic {
    if
    :: may_write(p, t) && waits(t) -> wait_if_waiting(p, t, t); wait_if_waiting(p, next(t), t)
    :: else
    fi;
    goto over
  }

over:
  atomic {
    forget_reads(p, i);
    t = 0; m0 = 0; m1 = 0; need0 = 0; need1 = 0; tried = 0; from_answer = 0;
    busy[i]--;
    goto idle
  }
}

#define pair(m) ((m) - (m) % 2)
#define awaited_by(c, m) (is_waiting(c) && token[c] == launched_by[m])
#define is_owned(m) (has(pair(m), m) || has(pair(m) + 1, m) || awaited_by(pair(m), m) || awaited_by(pair(m) + 1, m))
#define is_garbage(m) (ec2[m] == RUNNING && !is_owned(m))
#define moves_on(c) (state[c] >= LAUNCHED && state[c] <= TERMINATING && \
                     (state[c] != REGISTERED || ec2[holds[c] - 1] == ENDED))
#ifdef RESTORE_WITHOUT_ADOPTION
#define is_collected(m) (is_garbage(m) && !once_in_service[m])
#else
#define is_collected(m) is_garbage(m)
#endif

/* The `lifecycle` invocations, and the sweep that sets their timers. */
proctype keeper(byte i; byte p) {
  byte c, m;

idle:
  atomic {
    if
    :: moves_on(i * 4) -> c = i * 4; goto visit
    :: moves_on(i * 4 + 1) -> c = i * 4 + 1; goto visit
    :: moves_on(i * 4 + 2) -> c = i * 4 + 2; goto visit
    :: moves_on(i * 4 + 3) -> c = i * 4 + 3; goto visit
    :: is_collected(i * 4) -> m = i * 4; busy[i]++; goto unowned
    :: is_collected(i * 4 + 1) -> m = i * 4 + 1; busy[i]++; goto unowned
    :: is_collected(i * 4 + 2) -> m = i * 4 + 2; busy[i]++; goto unowned
    :: is_collected(i * 4 + 3) -> m = i * 4 + 3; busy[i]++; goto unowned
    fi;
visit:
    busy[i]++;
    fresh(p, c) = 1;
    m = holds[c] - 1;
    goto visited
  }

visited:
  skip;
  atomic {
    if
    :: !fresh(p, c) -> goto over
    :: else
    fi;
    if
    :: state[c] == LAUNCHED && ec2[m] == RUNNING -> register(c); serves[m] = pod[c]; node_claim[m] = c + 1
    :: state[c] == LAUNCHED -> give_up(c)
    :: state[c] == LAUNCHED && ec2[m] == ENDED -> fail(c)
    :: state[c] > LAUNCHED && state[c] < TERMINATING && ec2[m] == ENDED -> finish(c)
    :: state[c] == TERMINATING ->
       terminate(c, m);
       if
       :: crashes > 0 -> crashes--; goto over
       :: goto ended
       fi
    fi;
    wrote(p, c)
  }
  goto over;

ended:
  skip;
  atomic {
    if
    :: !fresh(p, c) -> goto over
    :: else ->
       if
       :: finish(c)
       :: !once_in_service[m] -> fail(c)
       fi;
       wrote(p, c);
       goto over
    fi
  }

unowned:
  skip;
  atomic {
    if
    :: ec2[m] == RUNNING && once_in_service[m] ->
       if
       :: state[node_claim[m] - 1] == ABSENT ->
          c = node_claim[m] - 1;
          adopt(c, m, REGISTERED);
          pod[c] = 0;
          wrote(p, c)
       :: is_final(node_claim[m] - 1) -> state[node_claim[m] - 1] = ABSENT   /* Forgotten after seven days. */
       :: else
       fi
    :: ec2[m] == RUNNING && !once_in_service[m] -> terminate_garbage(m)
    :: else
    fi
  }

over:
  atomic {
    forget_reads(p, i);
    c = 0; m = 0;
    busy[i]--;
    goto idle
  }
}

#define may_plan(i) (claims_of[first(i)] == 0 || (claims_of[first(i)] == 1 && claims_of[first(i) + 1] == 0))
#define needs_node(i, p) (is_pending(i, p) && !has_claim(i, p))
#define needs_schedule(i) (waits(i * 4) || waits(i * 4 + 1) || waits(i * 4 + 2) || waits(i * 4 + 3) || \
                           (may_plan(i) && (needs_node(i, 0) || needs_node(i, 1))))

/* Users, messages, and the sweep that repeats them. */
proctype world(byte i) {
  do
  :: atomic { !wanted[i * 2] -> wanted[i * 2] = 1; hints[i]++ }
  :: atomic { PODS > 1 && !wanted[i * 2 + 1] -> wanted[i * 2 + 1] = 1; hints[i]++ }
  :: atomic { lost > 0 && hints[i] > 0 -> lost--; hints[i]-- }
  :: atomic { hints[i] == 0 && needs_schedule(i) -> hints[i]++ }
  od
}

#define ends(m) (interruptions > 0 && ec2[m] == RUNNING) -> interruptions--; lose(m)

/* AWS ends instances; people restore table `state` of the first install. */
proctype operator() {
  bit saved;
  do
  :: atomic { ends(0) }
  :: atomic { ends(1) }
#if RESTORES
  :: atomic {
       !saved && restores > 0 ->
       saved = 1;
       saved_state[0] = state[0]; saved_state[1] = state[1];
       saved_holds[0] = holds[0]; saved_holds[1] = holds[1]
     }
  :: atomic {   /* The install is paused: none of its invocations is under way. */
       restores > 0 && busy[0] == 0 ->
       restores--;
       saved = 1;
       state[0] = saved_state[0]; state[1] = saved_state[1];
       holds[0] = saved_holds[0]; holds[1] = saved_holds[1];
       after_restore[0] = 1;
       saved_state[0] = 0; saved_state[1] = 0; saved_holds[0] = 0; saved_holds[1] = 0
     }
#endif
  od
}

#define is_kept(m) (has(pair(m), m) || has(pair(m) + 1, m))
#define must_be_kept(m) assert(ec2[m] != RUNNING || is_kept(m))
#define must_be_settled(c) assert(!is_waiting(c) && (!is_live(c) || ec2[holds[c] - 1] == RUNNING))

/* When nothing more happens: every instance has a claim or has ended, and no claim waits or lacks its instance. */
proctype at_rest() {
  byte c;
  timeout ->
  d_step {
    do
    :: c < CLAIMS -> must_be_kept(c); must_be_settled(c); c++
    :: else -> break
    od
  }
}

init {
  byte i, d;
  atomic {
    do
    :: i < INSTALLS ->
       d = 0;
       do
       :: d < DECIDERS -> run decider(i, i * (DECIDERS + 1) + d); d++
       :: else -> break
       od;
       run keeper(i, i * (DECIDERS + 1) + DECIDERS);
       run world(i);
       i++
    :: else -> break
    od;
    run operator();
    run at_rest()
  }
}
