package jobstate

import (
	"fmt"
	"time"

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

// restart decides whether another generation follows a failure.
type restart struct {
	made    int  // restarts, in all
	recent  int  // restarts within the last hour
	doubled int  // how often the backoff was doubled
	coming  bool // another generation is to follow the present one

	// notice of a generation that follows without a failure, as hosts are changed;
	// it counts as no restart. "" for a restart.
	uncounted string

	culprit int // host that was blamed last
	inRow   int // how often in a row; 0: never
}

// blame charges a failure to a host.
func (r *restart) blame(h int) {
	if h != r.culprit {
		r.culprit, r.inRow = h, 0
	}
	r.inRow++
}

// forgive forgets failures before a generation that has run for steadyTime.
func (r *restart) forgive() { r.doubled, r.inRow = 0, 0 }

// decide says whether another generation follows a failure, and if not, why.
func (r *restart) decide(v view, f failure, reason string) ([]Command, decision) {
	if v.plan.Restarts.Max <= 0 || v.expired {
		return nil, nil
	}
	if why := r.exhausted(v, f); why != "" {
		return nil, final{why}
	}
	commands, bar, why := r.leaveOut(v, f.host)
	if why != "" {
		return nil, final{why}
	}
	r.coming = true
	note := Note{Text: fmt.Sprintf("%s: restarting in %s (attempt %d of %d)",
		reason, r.backoff(v.plan.Restarts), r.made+1, v.plan.Restarts.Max)}
	return append(commands, note), another{bar}
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
		return fmt.Sprintf("%s within an hour, the most allowed (--restarts-per-hour)", count(r.recent, "restart"))
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
	case !e.Native && (e.Code == 2 || e.Code == 126 || e.Code == 127):
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
		if b = min(2*b, most); b == most {
			break
		}
	}
	return b
}

// follow has another generation follow that counts as no restart.
func (r *restart) follow(notice string) { r.coming, r.uncounted = true, notice }

// cancel notes that no other generation is to follow, or that it is being begun.
func (r *restart) cancel() { r.coming = false }

// again counts the restart that is made now, and tells the user.
func (r *restart) again(v view, after, where string) (timers, notes []Command) {
	if uncounted := r.uncounted; uncounted != "" {
		r.uncounted = ""
		return nil, notice("%s; %s", uncounted, where)
	}
	r.made++
	r.recent++
	r.doubled++
	return timer(hourTimer(r.made), time.Hour),
		notice("restarted (%d of %d) after %s; %s", r.made, v.plan.Restarts.Max, after, where)
}

// hourOver notes that a restart is an hour ago.
func (r *restart) hourOver() { r.recent-- }

// steady begins to count for how long a generation runs.
func (r *restart) steady(v view) []Command {
	if v.plan.Restarts.Max <= 0 {
		return nil
	}
	return timer(SteadyTimer, steadyTime)
}

// done is the reason of a job's good end.
func (r *restart) done() string {
	if r.made == 0 {
		return "done"
	}
	return "done, after " + count(r.made, "restart")
}
