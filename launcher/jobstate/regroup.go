package jobstate

import (
	"fmt"
	"time"
)

const (
	// reviveTime is how long a host that answers may take to get a new agent before
	// the others go on without it.
	reviveTime = 15 * time.Second
	// regroupMargin is added to all that a regrouping may have to wait for, so that
	// it ends even if it hears nothing any more.
	regroupMargin = time.Minute
)

// regroup decides when the next generation begins: after the backoff, once every
// host has an agent or nothing can run there any more. Nothing of the job runs
// meanwhile.
type regroup struct {
	early   bool // the backoff is not over
	alone   bool // reviveTime is over
	waited  bool // --wait-host is over
	waiting bool // the user knows that plx waits for hosts
}

// begin begins to wait, at least for a pause.
func (r *regroup) begin(v view, pause time.Duration) []Command {
	limits := v.plan.Restarts
	*r = regroup{early: pause > 0, waited: limits.WaitHost <= 0}
	// A host is lost a lease after it was heard, and nothing runs there another
	// lease and a bit later.
	longest := pause + reviveTime + limits.WaitHost + 3*v.plan.Lease + regroupMargin
	commands := append(timer(BackoffTimer, pause), timer(ReviveTimer, reviveTime)...)
	commands = append(commands, timer(WaitTimer, limits.WaitHost)...)
	return append(commands, timer(RegroupTimer, longest)...)
}

// elapsed takes the end of a time that regroup waits for.
func (r *regroup) elapsed(t Timer) {
	switch t {
	case BackoffTimer:
		r.early = false
	case ReviveTimer:
		r.alone = true
	case WaitTimer:
		r.waited = true
	}
}

// overdue gives up.
func (r *regroup) overdue(v view) decision { return abandon{"it took too long" + v.hosts.missing()} }

// next begins the next generation once that may be.
func (r *regroup) next(v view) ([]Command, decision) {
	if seat := v.hosts.seatLost(); seat != nil {
		return nil, abandon{fmt.Sprintf("host %s drives the job and is lost: %s", seat.name(), seat.silent)}
	}
	if r.early || r.awaits(v) {
		return nil, nil
	}
	return r.choose(v, v.scaling)
}

// choose decides with the hosts that are there. If they are too few and hosts are
// being changed, the job can go back to the old ones.
func (r *regroup) choose(v view, canGoBack bool) ([]Command, decision) {
	short, missing := shortage(v, v.hosts.available), v.hosts.missing()
	switch {
	case short == "":
		return nil, begin{}
	case canGoBack:
		return nil, tooFew{short + missing}
	case shortage(v, func(h int) bool { return mayCome(v, h) }) != "":
		return nil, abandon{short + missing}
	case r.waited:
		return nil, abandon{fmt.Sprintf("%s, and no host came back within %s (--wait-host)%s", short, v.plan.Restarts.WaitHost, missing)}
	case r.waiting:
		return nil, nil
	}
	r.waiting = true
	return []Command{Note{Text: fmt.Sprintf("%s: waiting up to %s for hosts to come back (--wait-host)%s", short, v.plan.Restarts.WaitHost, missing)}}, nil
}

// awaits reports whether it is not known of a host what becomes of it: its
// connection may be back or be lost, a lease runs, or an agent is being started.
func (r *regroup) awaits(v view) bool {
	for _, h := range v.hosts {
		switch {
		case h.place == joining || h.place == left: // nothing has run there, or it is seen to
		case !h.gone && (h.silent != "" || h.leaving || !h.up):
			return true
		case h.gone && h.clearing:
			return true
		case h.place == member && h.gone && !h.barred && h.answers && v.plan.Restarts.Revive && !r.alone:
			return true
		}
	}
	return false
}
