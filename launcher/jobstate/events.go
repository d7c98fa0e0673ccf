package jobstate

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// Event is something that happened: one of the types below. Hosts are indices
// into Plan.Hosts; hosts that joined follow them.
type Event interface {
	about() (host int) // -1: none
}

// The events.
type (
	// Up reports that the driver has connected to the host's agent, which is in
	// State. The driver reports it after every connection.
	Up struct {
		Host  int
		State protocol.State
	}
	// Silent reports that the driver has lost the connection and dials again.
	Silent struct {
		Host  int
		Cause string
	}
	// Lost reports that the host's agent is gone for good. After Clear at the
	// latest its tasks are gone too: that is how long its lease can still run.
	// Answers reports that the driver has reached the host and may soon start a
	// new agent there. If the plan allows that, a later Up is that agent's.
	Lost struct {
		Host    int           // index of the host
		Cause   string        // why the agent counts as lost
		Clear   time.Duration // time until nothing of the agent can run any more; 0: nothing runs now
		Answers bool          // the driver reached the host and may soon start a new agent there
	}
	// Heard reports a message of the agent, other than State.
	Heard struct {
		Host    int
		Message protocol.Message
	}
	// StopAsked reports that the user, or a signal, wants the job to end. Grace 0
	// means at once. With a SaveTime the chief saves first, in at most that time.
	StopAsked struct {
		Reason   string        // for the verdict: who or what asked
		Code     int           // plx's exit status; 0: exit.CodePlx
		Grace    time.Duration // between telling tasks to end and killing them; 0: kill at once
		SaveTime time.Duration // bound of the checkpoint before the stop; 0: none is made
	}
	// Suspended reports that the driver did not run for so long that hosts may have
	// ended their tasks.
	Suspended struct{ For time.Duration }
	// Elapsed reports the end of a timer that a SetTimer command has set.
	Elapsed struct{ Timer Timer }
)

func (e Up) about() int      { return e.Host }
func (e Silent) about() int  { return e.Host }
func (e Lost) about() int    { return e.Host }
func (e Heard) about() int   { return e.Host }
func (StopAsked) about() int { return -1 }
func (Suspended) about() int { return -1 }
func (Elapsed) about() int   { return -1 }

// Timer names a timer. Setting a timer again replaces it.
type Timer string

// The timers. Each constant says what must have happened by its end.
const (
	startTimer   Timer = "start"   // all tasks have started
	maxTimer     Timer = "max"     // the job has ended (--max-time)
	settleTimer  Timer = "settle"  // failures have been collected
	doubtTimer   Timer = "doubt"   // the task that a worker blames has failed, or has not
	stopTimer    Timer = "stop"    // tasks that were told to end have ended
	saveTimer    Timer = "save"    // the chief has saved
	hangTimer    Timer = "hang"    // hosts have answered what their tasks do
	scaleTimer   Timer = "scale"   // the present part of a change of hosts is over
	steadyTimer  Timer = "steady"  // the generation has run so long that earlier failures are forgiven
	backoffTimer Timer = "backoff" // the next generation may begin
	reviveTimer  Timer = "revive"  // hosts that answer have a new agent
	waitTimer    Timer = "wait"    // lost hosts are back (--wait-host)
	regroupTimer Timer = "regroup" // every host has an agent or is lost
)

// hourTimer ends one hour after restart n.
func hourTimer(n int) Timer { return Timer(fmt.Sprintf("hour %d", n)) }

// clearTimer ends when nothing can run any more on host h, which was lost.
func clearTimer(h int) Timer { return Timer(fmt.Sprintf("clear %d", h)) }

// Command is something that the driver does: one of the types below.
type Command interface{ command() }

// The commands.
type (
	// Send sends a message to a host's agent. Without a connection the driver
	// drops it; after Up the machine sends again what still matters.
	Send struct {
		Host    int
		Message protocol.Message
	}
	// SetTimer asks for Elapsed after a time.
	SetTimer struct {
		Timer Timer
		After time.Duration
	}
	// Note prints one line for the user. A lasting line is also among the notices
	// of the verdict.
	Note struct {
		Text    string
		Lasting bool // the line is also among the notices of the verdict
	}
	// Hung reports that nothing moves in the job, after the notes that say so.
	Hung struct{ Hang protocol.Hang }
	// Enter announces the phase that the job is in from now on.
	Enter struct{ Phase protocol.Phase }
	// Lay announces where the tasks of a generation after the first run.
	Lay struct {
		Generation int
		Hosts      []protocol.HostPlan
	}
	// Join adds a host with the next index. The driver connects to its agent.
	Join struct {
		Host    int // index of the new host
		Joining protocol.Joining
	}
	// Leave ends the agent of a host that no longer belongs to the job. The
	// machine ignores all later events of that host.
	Leave struct{ Host int }
	// Holding reports that the chief has made no step for this long, because
	// hosts are changed.
	Holding struct{ For time.Duration }
	// Answer tells the agent of a host, for its visitor, what came of a Scale.
	// The driver fills in the pause, which counts from Holding.
	Answer struct {
		Host   int // index of the host whose agent the visitor is connected to
		Scaled protocol.Scaled
	}
	// Conclude ends the job: the driver sends End to every agent.
	Conclude struct{ Verdict protocol.Verdict }
)

func (Send) command()     {}
func (SetTimer) command() {}
func (Note) command()     {}
func (Hung) command()     {}
func (Enter) command()    {}
func (Lay) command()      {}
func (Join) command()     {}
func (Leave) command()    {}
func (Holding) command()  {}
func (Answer) command()   {}
func (Conclude) command() {}

// notice is a Note that is also among the notices of the verdict.
func notice(format string, args ...any) []Command {
	return []Command{Note{Text: fmt.Sprintf(format, args...), Lasting: true}}
}

// timer sets a timer; a time of 0 sets none.
func timer(t Timer, after time.Duration) []Command {
	if after <= 0 {
		return nil
	}
	return []Command{SetTimer{Timer: t, After: after}}
}

func send(h int, m protocol.Message) Command { return Send{Host: h, Message: m} }
