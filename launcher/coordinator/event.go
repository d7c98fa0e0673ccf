package coordinator

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// Event is something that happened: one of the types below. Hosts are
// indices into Plan.Hosts.
type Event interface{ event() }

// The events.
type (
	// Up: there is a connection to the host's agent, which is in State. It
	// comes again after each reconnection.
	Up struct {
		Host  int
		State protocol.State
	}
	// Silent: the connection is lost; it is being dialled again.
	Silent struct {
		Host  int
		Cause string
	}
	// Lost: the host's agent is gone for good. Its tasks are gone with it
	// after Clear at the latest, which is as long as its lease may still run.
	// Answers says that the host was reached: a new agent may be there soon.
	// Where the plan lets hosts be revived, an Up that follows is that of a
	// new agent.
	Lost struct {
		Host    int
		Cause   string
		Clear   time.Duration
		Answers bool
	}
	// Heard: the agent sent a message other than State.
	Heard struct {
		Host    int
		Message protocol.Message
	}
	// StopAsked: the user, or a signal, wants the job to end. Grace 0 means
	// at once. With a SaveTime the job is saved before, in at most that time.
	StopAsked struct {
		Reason   string
		Code     int
		Grace    time.Duration
		SaveTime time.Duration
	}
	// Elapsed: a timer that a SetTimer command asked for has run out.
	Elapsed struct{ Timer Timer }
)

func (Up) event()        {}
func (Silent) event()    {}
func (Lost) event()      {}
func (Heard) event()     {}
func (StopAsked) event() {}
func (Elapsed) event()   {}

// Timer names a timer; setting one again replaces it.
type Timer string

// The timers.
const (
	StartTimer   Timer = "start"   // all tasks must have started
	MaxTimer     Timer = "max"     // the job's --max-time
	SettleTimer  Timer = "settle"  // failures have been collected
	DoubtTimer   Timer = "doubt"   // what a worker blames has not failed
	StopTimer    Timer = "stop"    // told tasks should have ended
	SaveTimer    Timer = "save"    // the chief should have saved
	ScaleTimer   Timer = "scale"   // the present part of a change of hosts should be over
	SteadyTimer  Timer = "steady"  // a generation has run well for long
	BackoffTimer Timer = "backoff" // the next generation may begin
	ReviveTimer  Timer = "revive"  // hosts that answer should have a new agent
	WaitTimer    Timer = "wait"    // the job's --wait-host
	RegroupTimer Timer = "regroup" // by now every host should be there or lost
)

// hourTimer is when restart n is an hour ago.
func hourTimer(n int) Timer { return Timer(fmt.Sprintf("hour %d", n)) }

// clearTimer is when nothing runs any more on host h, which was lost.
func clearTimer(h int) Timer { return Timer(fmt.Sprintf("clear %d", h)) }

// Command is something to do: one of the types below.
type Command interface{ command() }

// The commands.
type (
	// Send a message to a host's agent. It is dropped when there is no
	// connection; what still matters is sent again after Up.
	Send struct {
		Host    int
		Message protocol.Message
	}
	// SetTimer asks for Elapsed after a time.
	SetTimer struct {
		Timer Timer
		After time.Duration
	}
	// Note tells the user something, in one line.
	Note struct{ Text string }
	// Enter says which phase the job is in now.
	Enter struct{ Phase protocol.Phase }
	// Lay says where the tasks of a generation after the first run.
	Lay struct {
		Generation int
		Hosts      []protocol.HostPlan
	}
	// Join adds a host, whose index is the next one: its agent is to be
	// connected.
	Join struct {
		Host    int
		Joining protocol.Joining
	}
	// Leave ends the agent of a host that is no host of the job any more.
	// What becomes of it counts for nothing.
	Leave struct{ Host int }
	// Holding: the job has taken no step for so long, because hosts are changed.
	Holding struct{ For time.Duration }
	// Answer tells the agent of a host, for its visitor, what came of a Scale.
	// The pause is the conductor's to fill in: it counts from Holding.
	Answer struct {
		Host   int
		Scaled protocol.Scaled
	}
	// Conclude ends the job: every agent is to be sent End.
	Conclude struct{ Verdict protocol.Verdict }
)

func (Send) command()     {}
func (SetTimer) command() {}
func (Note) command()     {}
func (Enter) command()    {}
func (Lay) command()      {}
func (Join) command()     {}
func (Leave) command()    {}
func (Holding) command()  {}
func (Answer) command()   {}
func (Conclude) command() {}
