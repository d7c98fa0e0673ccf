package hang

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

const (
	// busyTimes multiplies the hang timeout while a job uses the processor or
	// GPU and does nothing else. Otherwise a long compilation or an evaluation
	// without output would count as a hang.
	busyTimes = 3
	// explainTime is how long the hosts may take to report what their tasks
	// wait for.
	explainTime = 15 * time.Second
)

// Watch detects that a job hangs. It regularly asks all agents how long their
// tasks have been inactive. Once all tasks have been inactive for the hang
// timeout, it asks what each task waits for, and explains the hang. Watch does
// no I/O: its caller sends the requests and sets the timers.
type Watch struct {
	plan     protocol.HangPlan
	round    int                              // ID of the last request; 0 if none was sent
	waits    bool                             // true if the last request also asked what the tasks wait for
	answers  map[int]*protocol.ActivityReport // answers to the last request, by host index
	reported time.Duration                    // how long the job had been inactive when its current hang was reported; 0 if the job does not hang
}

// Advice is what the caller of a Watch has to do next.
type Advice struct {
	Ask   *protocol.ActivityRequest // request to send to the hosts of all running tasks; nil if none
	After time.Duration             // time after which to call Next; 0 keeps the previous timer
	Moves bool                      // the job was reported as hung and makes progress again
	Hang  *protocol.Hang            // explanation of a hang that has not been reported to the user yet; otherwise nil
}

// Begin starts to watch a generation (run of all tasks) whose tasks have
// started. Request IDs continue from the previous generation.
func (w *Watch) Begin(plan protocol.HangPlan) Advice {
	*w = Watch{plan: plan, round: w.round}
	return Advice{After: w.every()}
}

// every returns the time between two requests; 0 if hang detection is
// disabled.
func (w *Watch) every() time.Duration {
	if w.plan.Timeout <= 0 {
		return 0
	}
	return min(max(w.plan.Timeout/10, time.Second), 30*time.Second)
}

// Round returns the ID of the last request.
func (w *Watch) Round() int { return w.round }

// Next returns the next request, for the caller to send. If the last request
// asked what the tasks wait for, Next instead explains the hang from the
// answers that have arrived. tasks are the tasks that run since the job's last
// restart. The caller does not set their field Seen.
func (w *Watch) Next(tasks []Task) Advice {
	if w.waits {
		return w.explain(tasks)
	}
	return w.ask(false)
}

func (w *Watch) ask(waits bool) Advice {
	w.round++
	w.waits, w.answers = waits, map[int]*protocol.ActivityReport{}
	after := w.every()
	if waits {
		after = explainTime
	}
	return Advice{Ask: &protocol.ActivityRequest{ID: w.round, Waits: waits, Stacks: waits}, After: after}
}

// Heard records the answer of a host. It reports whether this is an answer to
// the last request.
func (w *Watch) Heard(host int, s *protocol.ActivityReport) bool {
	if w.answers == nil || s.ID != w.round {
		return false
	}
	w.answers[host] = s
	return true
}

// HasHeard reports whether the host has answered the last request.
func (w *Watch) HasHeard(host int) bool { return w.answers[host] != nil }

// Judge evaluates the answers to the last request. The caller calls it when
// the hosts of all running tasks have answered. If hold is true, the tasks may
// wait for a checkpoint or for a change of hosts, so Judge reports no hang.
func (w *Watch) Judge(tasks []Task, hold bool) Advice {
	if w.waits {
		return w.explain(tasks)
	}
	after, hangs := w.hangs(tasks)
	switch {
	case hangs && w.reported == 0 && !hold:
		return w.ask(true)
	case !hangs && w.reported > 0 && after < w.reported:
		w.reported = 0
		return Advice{Moves: true}
	}
	return Advice{}
}

// hangs reports whether the job hangs. after is the time since any task did
// something other than use the processor or GPU.
func (w *Watch) hangs(tasks []Task) (after time.Duration, hangs bool) {
	still, quiet := time.Duration(-1), time.Duration(-1)
	for _, t := range w.seen(tasks) {
		if t.Seen != nil {
			still, quiet = shorter(still, t.Seen.Idle), shorter(quiet, t.Seen.IOIdle)
		}
	}
	return quiet, quiet >= 0 && (still >= w.plan.Timeout || quiet >= busyTimes*w.plan.Timeout)
}

// shorter returns the shorter of two durations. A negative a means that there
// is no first duration.
func shorter(a, b time.Duration) time.Duration {
	if a < 0 || b < a {
		return b
	}
	return a
}

// seen returns copies of the tasks with Seen set to what their hosts have
// answered.
func (w *Watch) seen(tasks []Task) (all []Task) {
	for _, t := range tasks {
		if s := w.answers[t.HostIndex]; s != nil && t.Exit == nil {
			t = Task{Name: t.Name, Host: t.Host, HostIndex: t.HostIndex, Seen: s.Tasks[t.Name]}
		}
		all = append(all, t)
	}
	return all
}

// explain finds the culprit from the answers that have arrived.
func (w *Watch) explain(tasks []Task) Advice {
	after, hangs := w.hangs(tasks)
	w.waits = false
	if !hangs { // the job has made progress in the meantime
		return Advice{After: w.every()}
	}
	w.reported = after
	found := explain(w.seen(tasks), after)
	return Advice{After: w.every(), Hang: &found}
}

// Reason returns the Verdict.Reason of a job that was stopped because it hung.
func Reason(h protocol.Hang) string {
	return fmt.Sprintf("hung: nothing moved for %s: %s", h.After, Line(h))
}

// Line returns the line for the user that names the culprit of a hang.
func Line(h protocol.Hang) string {
	if h.Culprit == "" {
		return "culprit: " + h.Why
	}
	return fmt.Sprintf("culprit: %s on %s: %s", h.Culprit, h.Host, h.Why)
}
