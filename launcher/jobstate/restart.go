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
	// maxBackoff is the largest delay before a restart, unless
	// Restarts.Backoff is larger.
	maxBackoff = time.Minute
	// steadyTime is how long a generation (run of all tasks) must run without
	// a failure. Then the backoff and the count of failures in a row are
	// reset.
	steadyTime = 10 * time.Minute
	// maxBlamed is the number of failures in a row that plx attributes to one
	// host before it gives the host no more tasks.
	maxBlamed = 3
)

// restart decides whether another generation (run of all tasks) follows a
// failure. Always 0 <= recent <= made and 0 <= doubled <= made.
type restart struct {
	made    int  // number of restarts of the job so far
	recent  int  // number of restarts within the last hour
	doubled int  // number of times that the backoff (delay before a restart) has been doubled; 0 again after steadyTime without a failure
	coming  bool // another generation (run of all tasks) will follow the current one and has not begun yet

	// uncounted is a notice for the user. It is set if the next generation
	// (run of all tasks) begins because hosts were added or removed, which
	// does not count as a restart. It is empty if the next generation is a
	// restart after a failure.
	uncounted string

	culprit int // index of the host that was blamed for the last failure; valid if inRow > 0
	inRow   int // number of failures in a row that were blamed on the host culprit
}

// blame counts failure f against its host. It does not count an excused
// failure: one that may have happened because the driver (process that
// controls the job) was suspended.
func (r *restart) blame(f failure) {
	if f.host != r.culprit || f.excused {
		r.culprit, r.inRow = f.host, 0
	}
	if !f.excused {
		r.inRow++
	}
}

// decide decides whether another generation (run of all tasks) follows failure
// f. exclude is the index of a host that must get no tasks in that generation,
// or -1. If restarts are enabled but none follows, why is the reason; plx
// prints it when the job ends.
func (r *restart) decide(v view, f failure, reason string) (commands []Command, exclude int, why string) {
	if v.plan.Restarts.Max <= 0 || v.expired {
		return nil, -1, ""
	}
	if why = r.exhausted(v, f); why == "" {
		commands, exclude, why = r.leaveOut(v, f.host)
	}
	if why != "" {
		return nil, -1, "; " + why
	}
	r.coming = true
	return append(commands, notice("%s: restarting in %s (attempt %d of %d)",
		reason, r.backoff(v.plan.Restarts), r.made+1, v.plan.Restarts.Max)...), exclude, ""
}

// exhausted returns why the job may not be restarted after failure f, or "" if
// it may.
func (r *restart) exhausted(v view, f failure) string {
	if v.saving {
		return "not restarted: the job was asked to end"
	}
	if why := futile(v, f); why != "" && v.generation.number == 0 {
		return "not restarted: " + why
	}
	if driving := v.hosts.lostDriver(); driving != nil {
		return fmt.Sprintf("not restarted: host %s drives the job", driving.name())
	}
	switch limits := v.plan.Restarts; {
	case r.made >= limits.Max:
		return fmt.Sprintf("%d of at most %d restarts were made (--max-restarts)", r.made, limits.Max)
	case limits.PerHour > 0 && r.recent >= limits.PerHour:
		return fmt.Sprintf("%s within an hour, the most allowed (--restarts-per-hour)", plural.Count(r.recent, "restart"))
	}
	return ""
}

// futile returns why a restart would only repeat failure f, such as a program
// that does not exist. It returns "" if a restart may help. It is for a job
// that has never been restarted.
func futile(v view, f failure) string {
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

// leaveOut excludes host h from the job if too many failures in a row were
// blamed on it. exclude is the index of the excluded host, or -1. If the job
// must end because too few tasks would remain, why says so. The only host of a
// job is never excluded.
func (r *restart) leaveOut(v view, h int) (commands []Command, exclude int, why string) {
	if r.inRow < maxBlamed || len(v.hosts) == 1 {
		return nil, -1, shortage(v, func(i int) bool { return mayCome(v, i) })
	}
	if short := shortage(v, func(i int) bool { return i != h && mayCome(v, i) }); short != "" {
		return nil, -1, fmt.Sprintf("host %s failed %d times in a row, and without it %s", v.name(h), maxBlamed, short)
	}
	return notice("host %s failed %d times in a row and is left out", v.name(h), maxBlamed), h, ""
}

// backoff returns the delay before the next restart.
func (r *restart) backoff(limits protocol.Restarts) time.Duration {
	b := max(limits.Backoff, time.Millisecond)
	most := max(maxBackoff, b)
	for range r.doubled {
		b = min(2*b, most)
	}
	return b
}

// follow makes another generation (run of all tasks) follow the current one
// without counting it as a restart. notice tells the user why.
func (r *restart) follow(notice string) { r.coming, r.uncounted = true, notice }

// again returns a notice about the generation (run of all tasks) that begins
// now. It counts the generation as a restart, unless the generation follows a
// change of hosts. The notice about a restart has no reason, because decide
// has already told the user the reason.
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

// done returns the Verdict.Reason of a job that has succeeded.
func (r *restart) done() string {
	if r.made == 0 {
		return "done"
	}
	return "done, after " + plural.Count(r.made, "restart")
}

const (
	// reviveTime is how long the next generation (run of all tasks) waits for
	// a new agent on a host whose agent is lost, but which the driver can
	// still reach.
	reviveTime = 15 * time.Second
	// regroupMargin is added to the longest time that the stage regrouping
	// (the wait for hosts before a restart) should take. The stage ends after
	// the sum at the latest, even if an expected event never arrives.
	regroupMargin = time.Minute
)

// regroup decides when the next generation (run of all tasks) begins. It acts
// in the stage regrouping, in which no task of the job runs. The generation
// begins when the backoff is over and each host either has an agent or can no
// longer run any task.
type regroup struct {
	over    map[Timer]bool // which of backoffTimer, reviveTimer and waitTimer have expired; nil before the first call of begin
	waiting bool           // the user has been notified that the job waits for hosts
}

// begin starts the wait for the hosts of the next generation (run of all
// tasks). The wait lasts at least for the duration pause.
func (r *regroup) begin(v view, pause time.Duration) []Command {
	limits := v.plan.Restarts
	*r = regroup{over: map[Timer]bool{backoffTimer: pause <= 0, waitTimer: limits.WaitHost <= 0}}
	// The driver counts a host as lost one lease after the host's last
	// message. The agent on that host ends its tasks when its own lease
	// expires: at most slightly more than one lease after that.
	longest := pause + reviveTime + limits.WaitHost + 3*v.plan.Lease + regroupMargin
	return slices.Concat(timer(backoffTimer, pause), timer(reviveTimer, reviveTime),
		timer(waitTimer, limits.WaitHost), timer(regroupTimer, longest))
}

// elapsed records that timer t has expired.
func (r *regroup) elapsed(t Timer) {
	if r.over != nil {
		r.over[t] = true
	}
}

// next begins the next generation (run of all tasks) if there is nothing left
// to wait for.
func (r *regroup) next(v view) ([]Command, decision) {
	if driving := v.hosts.lostDriver(); driving != nil {
		return nil, abandon{fmt.Sprintf("host %s drives the job and is lost: %s", driving.name(), driving.disconnected)}
	}
	if !r.over[backoffTimer] || r.awaits(v) {
		return nil, nil
	}
	return r.choose(v, v.scaling)
}

// choose decides whether the available hosts are enough for the next
// generation (run of all tasks). If they are not and canGoBack is true, the
// job returns to the hosts that it had before the last change of hosts.
// Otherwise choose waits for more hosts or ends the job.
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

// awaits reports whether the next generation (run of all tasks) must wait for
// a host. It must if the connection to the host may come back, if a new agent
// is being started, or if tasks may still run there because the agent's lease
// has not expired.
func (r *regroup) awaits(v view) bool {
	for _, h := range v.hosts {
		switch {
		case h.place == joining || h.place == left: // do not wait: a host that joins or has left runs no tasks of the previous generation (run of all tasks)
		case !h.lost && (h.disconnected != "" || h.leaving || !h.up):
			return true
		case h.lost && h.tasksMayRun:
			return true
		case h.place == member && h.lost && !h.excluded && h.revivable && v.plan.Restarts.Revive && !r.over[reviveTimer]:
			return true
		}
	}
	return false
}
