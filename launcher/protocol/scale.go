package protocol

import (
	"fmt"
	"time"
)

// Scale asks the driver to continue the job on other hosts, after the chief's present
// step. The answer is a Scaled of the same ID. A Scale with an ID that was asked
// before changes nothing a second time.
//
// A Scale without Known changes nothing at all: the answer lists the hosts.
type Scale struct {
	ID       string        `json:"id"`
	Known    int           `json:"known,omitempty"` // how many hosts the job has had, as the visitor knows it
	Join     []Joining     `json:"join,omitempty"`
	Leave    []int         `json:"leave,omitempty"` // host indices
	SaveTime time.Duration `json:"saveTime,omitempty"`
}

// Joining is a host whose agent was started with the next host index. The driver
// gives the indices of its tasks.
type Joining struct {
	HostPlan
	Addr string `json:"addr"` // the agent's own, as in State
}

// Scaled is the answer to Scale. With a Cause nothing was changed, and that is why.
type Scaled struct {
	ID         string        `json:"id"`
	Cause      string        `json:"cause,omitempty"`
	Generation int           `json:"generation,omitempty"` // the generation of the tasks in Hosts
	Hosts      []HostPlan    `json:"hosts,omitempty"`      // all that the job has had, by index
	From       int           `json:"from,omitempty"`       // workers before
	To         int           `json:"to,omitempty"`         // and now
	Step       int64         `json:"step,omitempty"`       // after which the hosts were changed
	Pause      time.Duration `json:"pause,omitempty"`      // from the moment at which the chief stood still to the end of the next step
}

// String is a line for the user.
func (s Scaled) String() string {
	return fmt.Sprintf("scaled from %d to %d workers after step %d: paused for %s", s.From, s.To, s.Step, s.Pause.Round(10*time.Millisecond))
}

// After returns the answer with the pause that the change took.
func (s Scaled) After(pause time.Duration) Scaled {
	s.Pause = pause
	return s
}
