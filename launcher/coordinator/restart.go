package coordinator

import (
	"fmt"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

const (
	// maxBackoff bounds the time before a restart, unless the user wants more.
	maxBackoff = time.Minute
	// steadyTime is how long a generation has to run for failures before it
	// to count no more as being in a row.
	steadyTime = 10 * time.Minute
	// reviveTime is how long a host that answers may take to get a new agent
	// before the others go on without it.
	reviveTime = 15 * time.Second
	// tooOften is how often in a row a host may be the culprit's.
	tooOften = 3
)

// restarts is what the machine knows of those made and of the one coming.
type restarts struct {
	made    int
	recent  int // within the last hour
	doubled int // how often the backoff was doubled
	coming  bool
	early   bool   // the backoff is not over
	free    string // not counted, as it is no failure of the job's: what is said of it
	alone   bool   // hosts that answer have had their time to get a new agent
	waiting bool   // the user knows that hosts are waited for
	waited  bool   // --wait-host is over
}

// decide charges the culprit's host and says whether the job goes on with
// another generation; where it does not although it was to, the verdict says
// why.
func (m *Machine) decide(culprit failure) {
	for i, h := range m.hosts {
		if i != culprit.host {
			h.blamed = 0
		}
	}
	m.hosts[culprit.host].blamed++
	if m.goBack() {
		return
	}
	if m.plan.Restarts.Max <= 0 || m.expired {
		return
	}
	if why := m.final(culprit); why != "" {
		m.verdict.Reason += "; " + why
		return
	}
	m.restarts.coming = true
	m.do(Note{Text: fmt.Sprintf("%s: generation %d is ended, to restart in %s (%d of %d)",
		m.verdict.Reason, m.generation, m.backoff(), m.restarts.made+1, m.plan.Restarts.Max)})
}

// final says why a failure is the job's end; "" when it is not.
func (m *Machine) final(culprit failure) string {
	r := m.plan.Restarts
	if m.saving != nil {
		return "not restarted: the job was asked to end"
	}
	if why := m.mistake(culprit); why != "" && m.generation == 0 {
		return "not restarted: " + why
	}
	for i, h := range m.hosts {
		if m.plan.Hosts[i].Seat && (h.gone || h.leaving) {
			return fmt.Sprintf("not restarted: host %s conducts the job", m.name(i))
		}
	}
	switch {
	case m.restarts.made >= r.Max:
		return fmt.Sprintf("%d of at most %d restarts were made (--max-restarts)", m.restarts.made, r.Max)
	case r.PerHour > 0 && m.restarts.recent >= r.PerHour:
		return fmt.Sprintf("%s within an hour, which is the most (--restarts-per-hour)", count(m.restarts.recent, "restart"))
	}
	return m.bar(culprit.host)
}

// mistake says why a failure of the first generation is one that a restart
// would only repeat; "" when it may not be.
func (m *Machine) mistake(f failure) string {
	e := f.exit
	switch {
	case !m.launched:
		return "the job had not begun"
	case f.task == nil:
		return ""
	case !e.Started:
		return "a program that cannot start now cannot later"
	case !e.Native && (e.Code == 2 || e.Code == 126 || e.Code == 127):
		return fmt.Sprintf("status %d means wrong use or no such program", e.Code)
	case e.Native && e.Signal == 0 && e.Code != 0 && e.LostPeer == "" && !m.stepped:
		return "it failed before any step was made"
	}
	return ""
}

// bar leaves a host out where the culprit was too often in a row. It says why
// that ends the job, "" when it does not. With no other host there is nothing
// to choose: the budget of restarts decides.
func (m *Machine) bar(h int) string {
	if m.hosts[h].blamed < tooOften || len(m.hosts) == 1 {
		return m.shortage(m.mayCome)
	}
	m.hosts[h].barred = true
	if short := m.shortage(m.mayCome); short != "" {
		return fmt.Sprintf("host %s failed %d times in a row, and without it %s", m.name(h), tooOften, short)
	}
	m.note("host %s failed %d times in a row and is left out", m.name(h), tooOften)
	return ""
}

// available reports whether host h can be given tasks.
func (m *Machine) available(h int) bool {
	return m.hosts[h].place == member && !m.hosts[h].gone && !m.hosts[h].barred
}

// mayCome reports whether host h has, or may come to have, an agent.
func (m *Machine) mayCome(h int) bool {
	return m.hosts[h].place == member && !m.hosts[h].barred && (!m.hosts[h].gone || m.plan.Restarts.Revive && m.plan.Restarts.Max > 0)
}

// shortage says what is missing where only the hosts that count are there; ""
// when they are enough.
func (m *Machine) shortage(counts func(h int) bool) string {
	workers, servers, all, allServers := 0, 0, 0, 0
	for i, h := range m.plan.Hosts {
		if m.hosts[i].place != member {
			continue
		}
		w := protocol.Workers(h.Tasks)
		all, allServers = all+w, allServers+len(h.Tasks)-w
		if counts(i) {
			workers, servers = workers+w, servers+len(h.Tasks)-w
		}
	}
	least := m.plan.Restarts.MinWorkers
	if least <= 0 {
		least = all
	}
	switch {
	case workers < least:
		return fmt.Sprintf("%d of %d workers are left, at least %d are needed (--min-workers)", workers, all, least)
	case workers == 0:
		return "no worker is left"
	case servers == 0 && allServers > 0:
		return "no server is left"
	}
	return ""
}

// backoff is the time before the next restart.
func (m *Machine) backoff() time.Duration {
	b := max(m.plan.Restarts.Backoff, time.Millisecond)
	most := max(maxBackoff, b)
	for range m.restarts.doubled {
		if b = min(2*b, most); b == most {
			break
		}
	}
	return b
}

// steady begins to count for how long a generation runs.
func (m *Machine) steady() {
	if m.plan.Restarts.Max > 0 {
		m.timer(SteadyTimer, steadyTime)
	}
}

// forgive forgets failures before a generation that has run well for long.
func (m *Machine) forgive() {
	m.restarts.doubled = 0
	for _, h := range m.hosts {
		h.blamed = 0
	}
}

// done is the reason of a verdict that is none.
func (m *Machine) done() string {
	reason := "done"
	if m.restarts.made > 0 {
		reason += ", after " + count(m.restarts.made, "restart")
	}
	return reason + m.fewer()
}

// between reports whether one generation has failed, or is being ended, and
// another is to follow.
func (m *Machine) between() bool {
	return m.stage == regrouping || m.stage == stopping && m.restarts.coming
}

// noteRestart keeps the failure after which the job was to be restarted, when
// something else ends it.
func (m *Machine) noteRestart() {
	if m.verdict.Reason != "" && m.between() {
		m.note("%s", m.verdict.Reason)
	}
}

// leftOut names the hosts that have no tasks any more.
func (m *Machine) leftOut() string {
	var names []string
	for i, h := range m.hosts {
		if len(h.tasks) == 0 && h.place == member {
			names = append(names, m.name(i))
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ", without " + strings.Join(names, ", ")
}
