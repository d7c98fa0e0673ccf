package protocol

import (
	"fmt"
	"time"
)

// Scale asks the conductor to go on with other hosts from the next step
// boundary on. Its answer is a Scaled of the same ID. Asked again with the same
// ID, nothing is done twice.
//
// One without Known changes nothing: the answer tells the hosts.
type Scale struct {
	ID       string        `json:"id"`
	Known    int           `json:"known,omitempty"` // how many hosts the job has had, as the visitor knows it
	Join     []Joining     `json:"join,omitempty"`
	Leave    []int         `json:"leave,omitempty"` // host indices
	SaveTime time.Duration `json:"saveTime,omitempty"`
}

// Joining is a host whose agent has been started with the next host index. The
// indices of its tasks are given by the conductor.
type Joining struct {
	HostPlan
	Addr string `json:"addr"` // the agent's own, as in State
}

// Scaled is the answer: with a Cause nothing was changed, and that is why.
type Scaled struct {
	ID         string        `json:"id"`
	Cause      string        `json:"cause,omitempty"`
	Generation int           `json:"generation,omitempty"` // whose the tasks of Hosts are
	Hosts      []HostPlan    `json:"hosts,omitempty"`      // all that the job has had, by index
	From       int           `json:"from,omitempty"`       // workers before
	To         int           `json:"to,omitempty"`         // and now
	Step       int64         `json:"step,omitempty"`       // behind which the hosts were changed
	Pause      time.Duration `json:"pause,omitempty"`      // from there to the end of the next step
}

// String says what was done, for the user.
func (s Scaled) String() string {
	return fmt.Sprintf("scaled from %d to %d workers behind step %d: paused for %s", s.From, s.To, s.Step, s.Pause.Round(10*time.Millisecond))
}
