package jobstate

import (
	"fmt"
	"slices"
	"time"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
)

const (
	// maxBackoff bounds the time before a restart, unless the user wants more.
	maxBackoff = time.Minute
	// steadyTime is how long a generation runs until earlier failures no longer
	// count as being in a row.
	steadyTime = 10 * time.Minute
	// tooOften is how often in a row the culprit is on a host that is then left out.
	tooOften = 3
)

// restart decides whether another generation follows a failure. 0 <= recent <= made, and
// 0 <= doubled <= made.
type restart struct {
	made    int  // number of restarts so far
	recent  int  // number of restarts within the last hour
	doubled int  // how often the backoff was doubled; 0 again after steadyTime without a failure
	coming  bool // another generation is to follow the present one, and has not begun

	// uncounted is the notice for a generation that follows a change of hosts, not a
	// failure, and does not count as a restart. "": the next generation is a restart.
	uncounted string

	culprit int // index of the host that was blamed last; valid if inRow is not 0
	inRow   int // failures in a row that were blamed on culprit; 0: none
}

// blame charges a failure to its host, unless that is excused.
func (r *restart) blame(f failure) {
	if f.host != r.culprit || f.excused {
		r.culprit, r.inRow = f.host, 0
	}
	if !f.excused {
		r.inRow++
	}
}

// decide decides whether another generation follows a failure. bar is a host that gets no
// tasks in it, -1 is none. If none follows although there are restarts, why says why.
func (r *restart) decide(v view, f failure, reason string) (commands []Command, bar int, why string) {
	if v.plan.Restarts.Max <= 0 || v.expired {
		return nil, -1, ""
	}
	if why = r.exhausted(v, f); why == "" {
		commands, bar, why = r.leaveOut(v, f.host)
	}
	if why != "" {
		return nil, -1, "; " + why
	}
	r.coming = true
	return append(commands, notice("%s: restarting in %s (attempt %d of %d)",
		reason, r.backoff(v.plan.Restarts), r.made+1, v.plan.Restarts.Max)...), bar, ""
}

// exhausted says why a restart is not allowed, or would only repeat the failure;
// "" if it is allowed.
func (r *restart) exhausted(v view, f failure) string {
	if v.saving {
		return "not restarted: the job was asked to end"
	}
	if why := mistake(v, f); why != "" && v.generation.number == 0 {
		return "not restarted: " + why
	}
	if seat := v.hosts.seatLost(); seat != nil {
		return fmt.Sprintf("not restarted: host %s drives the job", seat.name())
	}
	switch limits := v.plan.Restarts; {
	case r.made >= limits.Max:
		return fmt.Sprintf("%d of at most %d restarts were made (--max-restarts)", r.made, limits.Max)
	case limits.PerHour > 0 && r.recent >= limits.PerHour:
		return fmt.Sprintf("%s within an hour, the most allowed (--restarts-per-hour)", plural.Count(r.recent, "restart"))
	}
	return ""
}

// mistake says why a restart would only repeat a failure of the first generation;
// "" if it may not.
func mistake(v view, f failure) string {
	e := f.exit
	switch {
	case !v.launched:
		return "no task had been started"
	case f.task == nil:
		return ""
	case !e.Started:
		return "the program cannot be started"
	case !e.Native && (e.Code == exit.CodeUsage || e.Code == exit.CodeNotRunning || e.Code == exit.CodeNotFound):
		return fmt.Sprintf("status %d means wrong use or no such program", e.Code)
	case e.Native && e.Signal == 0 && e.Code != 0 && e.LostPeer == "" && !v.stepped:
		return "it failed before the job made a step"
	}
	return ""
}

// leaveOut leaves a host out if the culprit was there too often in a row. bar is
// that host, -1 is none; why says why the job ends instead. With a single host
// there is no choice: the number of restarts decides.
func (r *restart) leaveOut(v view, h int) (commands []Command, bar int, why string) {
	if r.inRow < tooOften || len(v.hosts) == 1 {
		return nil, -1, shortage(v, func(i int) bool { return mayCome(v, i) })
	}
	if short := shortage(v, func(i int) bool { return i != h && mayCome(v, i) }); short != "" {
		return nil, -1, fmt.Sprintf("host %s failed %d times in a row, and without it %s", v.name(h), tooOften, short)
	}
	return notice("host %s failed %d times in a row and is left out", v.name(h), tooOften), h, ""
}

// backoff is the time before the next restart.
func (r *restart) backoff(limits protocol.Restarts) time.Duration {
	b := max(limits.Backoff, time.Millisecond)
	most := max(maxBackoff, b)
	for range r.doubled {
		b = min(2*b, most)
	}
	return b
}

// follow has another generation follow that counts as no restart.
func (r *restart) follow(notice string) { r.coming, r.uncounted = true, notice }

// again counts the restart that is made now, and tells the user, who knows the reason from
// decide.
func (r *restart) again(v view, where string) []Command {
	if uncounted := r.uncounted; uncounted != "" {
		r.uncounted = ""
		return notice("%s; %s", uncounted, where)
	}
	r.made++
	r.recent++
	r.doubled++
	return append(timer(hourTimer(r.made), time.Hour),
		notice("restarted (%d of %d): %s", r.made, v.plan.Restarts.Max, where)...)
}

// done is the reason of a job's good end.
func (r *restart) done() string {
	if r.made == 0 {
		return "done"
	}
	return "done, after " + plural.Count(r.made, "restart")
}

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
	over    map[Timer]bool // which of backoffTimer, reviveTimer and waitTimer have ended; nil before the first wait
	waiting bool           // the user was told that plx waits for hosts
}

// begin begins to wait, at least for a pause.
func (r *regroup) begin(v view, pause time.Duration) []Command {
	limits := v.plan.Restarts
	*r = regroup{over: map[Timer]bool{backoffTimer: pause <= 0, waitTimer: limits.WaitHost <= 0}}
	// A host is lost a lease after it was heard, and nothing runs there another
	// lease and a bit later.
	longest := pause + reviveTime + limits.WaitHost + 3*v.plan.Lease + regroupMargin
	return slices.Concat(timer(backoffTimer, pause), timer(reviveTimer, reviveTime),
		timer(waitTimer, limits.WaitHost), timer(regroupTimer, longest))
}

// elapsed takes the end of a time that regroup waits for.
func (r *regroup) elapsed(t Timer) {
	if r.over != nil {
		r.over[t] = true
	}
}

// next begins the next generation once that may be.
func (r *regroup) next(v view) ([]Command, decision) {
	if seat := v.hosts.seatLost(); seat != nil {
		return nil, abandon{fmt.Sprintf("host %s drives the job and is lost: %s", seat.name(), seat.silent)}
	}
	if !r.over[backoffTimer] || r.awaits(v) {
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
	case r.over[waitTimer]:
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
		case h.place == member && h.gone && !h.barred && h.answers && v.plan.Restarts.Revive && !r.over[reviveTimer]:
			return true
		}
	}
	return false
}
