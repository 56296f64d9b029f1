/*
 * A lease with a fencing token, and a resource with a guard, as small as they can be while everything that matters
 * can still happen: a holder may be paused between any two of its steps, its lease may end at any moment without
 * its knowing, and a release or an expiry hands the name to whoever waits.
 *
 * Each client does, a few times: acquire, read the value, write the value plus one, release. A write that the
 * resource accepts is acknowledged. The one property: no acknowledged update is ever lost, that is, whoever writes
 * has read what is there now.
 *
 *   -DGUARD_READS -DGUARD_WRITES   safe
 *   (neither)                      a stale holder overwrites its successor
 *   -DGUARD_WRITES                 the successor has read, the stale holder writes, the successor overwrites it
 *
 * Time is not in the model: an expiry that may come at any moment covers every clock, every drift and every pause.
 */
#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef ROUNDS
#define ROUNDS 2
#endif
#define NOBODY CLIENTS

/* the engine */
byte holder = NOBODY;
byte token = 0;
bool waiting[CLIENTS];
byte granted[CLIENTS];

/* the resource */
byte value = 0;
byte highest = 0;

byte finished = 0;

/* Inside the release or the expiry itself: whoever waits gets the name and the next token. Any of them may be first. */
inline hand_over() {
  if
  :: waiting[0] -> grant(0)
  :: CLIENTS > 1 && waiting[1] -> grant(1)
  :: CLIENTS > 2 && waiting[CLIENTS - 1] -> grant(CLIENTS - 1)
  :: else -> holder = NOBODY
  fi
}

inline grant(who) {
  token++;
  holder = who;
  granted[who] = token;
  waiting[who] = false
}

inline pass_guard() {
  accepted = (mine >= highest);
  if
  :: accepted -> highest = mine
  :: else -> skip
  fi
}

proctype client(byte me) {
  byte mine, seen, round = 0;
  bool accepted;

  do
  :: round == ROUNDS -> break
  :: round < ROUNDS ->
    round++;
    atomic {
      if
      :: holder == NOBODY -> grant(me)
      :: else -> waiting[me] = true
      fi
    }
    atomic { granted[me] != 0 -> mine = granted[me]; granted[me] = 0 }

    /* From here on the lease may have ended, and this client cannot know. */
    atomic {
#ifdef GUARD_READS
      pass_guard();
#else
      accepted = true;
#endif
      seen = value
    }
    if
    :: accepted ->
      atomic {
#ifdef GUARD_WRITES
        pass_guard();
#endif
        if
        :: accepted ->
          assert(seen == value);
          value = seen + 1
        :: else -> skip
        fi
      }
    :: else -> skip
    fi;

    /* Compare and release: a late release touches no successor. */
    atomic {
      if
      :: holder == me && token == mine -> hand_over()
      :: else -> skip
      fi
    }
  od;
  atomic { finished++ }
}

/* The engine's clock: any lease may end at any time. */
proctype expiry() {
  do
  :: atomic { holder != NOBODY -> hand_over() }
  :: finished == CLIENTS -> break
  od
}

init {
  byte number = 0;
  atomic {
    run expiry();
    do
    :: number < CLIENTS -> run client(number); number++
    :: else -> break
    od
  }
}
