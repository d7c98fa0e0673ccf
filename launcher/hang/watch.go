package hang

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

const (
	// busyTimes is by how much longer than the hang timeout a job may only use processor
	// time: a compilation or an evaluation without output is no hang yet.
	busyTimes = 3
	// explainTime bounds the answers on what tasks wait for.
	explainTime = 15 * time.Second
)

// Watch finds out that a job hangs. It asks the agents of all tasks how long these have
// been still. Once nothing has moved for the timeout it asks what they wait for, and
// explains. Like all of the package it is pure: who calls it sends and sets timers.
type Watch struct {
	plan    protocol.HangPlan
	round   int                    // number of the last question; 0: none was asked
	waits   bool                   // the last question was what tasks wait for
	answers map[int]*protocol.Seen // to the last question, by host
	told    time.Duration          // for how long nothing had moved when the user was told; 0: the job moves
}

// Advice is what follows a step of the watch.
type Advice struct {
	Ask   *protocol.Look // to the hosts of all tasks that have not ended; nil: to none
	After time.Duration  // time until Next; 0: as set before
	Moves bool           // the job, which had hung, moves again
	Hang  *protocol.Hang // the job hangs; nil: it does not, or the user knows already
}

// Begin watches a generation whose tasks have started. Questions go on being numbered.
func (w *Watch) Begin(plan protocol.HangPlan) Advice {
	*w = Watch{plan: plan, round: w.round}
	return Advice{After: w.every()}
}

// every is the time between two questions; 0: none is asked.
func (w *Watch) every() time.Duration {
	if w.plan.Timeout <= 0 {
		return 0
	}
	return min(max(w.plan.Timeout/10, time.Second), 30*time.Second)
}

// Round is the number of the last question.
func (w *Watch) Round() int { return w.round }

// Next asks again, or ends a question that some hosts have not answered. tasks are those
// of the generation; Seen is filled in here.
func (w *Watch) Next(tasks []Task) Advice {
	if w.waits {
		return w.explain(tasks)
	}
	return w.ask(false)
}

func (w *Watch) ask(waits bool) Advice {
	w.round++
	w.waits, w.answers = waits, map[int]*protocol.Seen{}
	after := w.every()
	if waits {
		after = explainTime
	}
	return Advice{Ask: &protocol.Look{ID: w.round, Waits: waits, Stacks: waits}, After: after}
}

// Heard takes an answer of a host. It reports whether that is to the last question.
func (w *Watch) Heard(host int, s *protocol.Seen) bool {
	if w.answers == nil || s.ID != w.round {
		return false
	}
	w.answers[host] = s
	return true
}

// HasHeard reports whether a host has answered the last question.
func (w *Watch) HasHeard(host int) bool { return w.answers[host] != nil }

// Judge follows the last answer: all hosts of tasks that have not ended have answered. hold
// keeps the watch from finding that the job hangs.
func (w *Watch) Judge(tasks []Task, hold bool) Advice {
	if w.waits {
		return w.explain(tasks)
	}
	after, hangs := w.hangs(tasks)
	switch {
	case hangs && w.told == 0 && !hold:
		return w.ask(true)
	case !hangs && w.told > 0 && after < w.told:
		w.told = 0
		return Advice{Moves: true}
	}
	return Advice{}
}

// hangs reports for how long nothing has moved but processor time, and whether that is too
// long.
func (w *Watch) hangs(tasks []Task) (after time.Duration, hangs bool) {
	still, quiet := time.Duration(-1), time.Duration(-1)
	for _, t := range w.seen(tasks) {
		if t.Seen != nil {
			still, quiet = shorter(still, t.Seen.Still), shorter(quiet, t.Seen.Quiet)
		}
	}
	return quiet, quiet >= 0 && (still >= w.plan.Timeout || quiet >= busyTimes*w.plan.Timeout)
}

// shorter returns the shorter of two times; a negative first one is none.
func shorter(a, b time.Duration) time.Duration {
	if a < 0 || b < a {
		return b
	}
	return a
}

// seen returns the tasks with what their hosts have told of them.
func (w *Watch) seen(tasks []Task) (all []Task) {
	for _, t := range tasks {
		if s := w.answers[t.HostIndex]; s != nil && t.Exit == nil {
			t = Task{Name: t.Name, Host: t.Host, HostIndex: t.HostIndex, Seen: s.Tasks[t.Name]}
		}
		all = append(all, t)
	}
	return all
}

// explain names the culprit by the answers that have come.
func (w *Watch) explain(tasks []Task) Advice {
	after, hangs := w.hangs(tasks)
	w.waits = false
	if !hangs { // it has moved meanwhile
		return Advice{After: w.every()}
	}
	w.told = after
	found := explain(w.seen(tasks), after)
	return Advice{After: w.every(), Hang: &found}
}

// Reason is the reason of a job's verdict.
func Reason(h protocol.Hang) string {
	return fmt.Sprintf("hung: nothing moved for %s: %s", h.After, Line(h))
}

// Line is the line that names the culprit.
func Line(h protocol.Hang) string {
	if h.Culprit == "" {
		return "culprit: " + h.Why
	}
	return fmt.Sprintf("culprit: %s on %s: %s", h.Culprit, h.Host, h.Why)
}
