package jobstate

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

// Event is an input of the state machine: one of the types below. The field
// Host is an index into Plan.Hosts. The indices continue with hosts that
// joined the job later.
type Event interface {
	about() (host int) // index of the host that the event is about; -1 if none
}

// The events.
type (
	// Up reports that the driver has connected, or reconnected, to the agent
	// of a host. State is what the agent reported on that connection.
	Up struct {
		Host  int
		State protocol.State
	}
	// Silent reports that the driver has lost the connection to a host's agent
	// and is trying to reconnect.
	Silent struct {
		Host  int
		Cause string
	}
	// Lost reports that a host's agent is lost for good. Its tasks may run
	// until its lease expires, at most for the duration Clear. If the driver
	// then starts a new agent on the host, it reports that by another Up
	// event.
	Lost struct {
		Host    int           // index of the host
		Cause   string        // why the driver considers the agent lost
		Clear   time.Duration // how long processes of the agent may still run, from this event on; 0 if none runs now
		Answers bool          // true if the driver can reach the host and may soon start a new agent there
	}
	// Heard delivers a message from a host's agent. The message State is not
	// delivered in this way: it is part of the event Up.
	Heard struct {
		Host    int
		Message protocol.Message
	}
	// StopAsked reports that the user or a signal has asked to end the job. If
	// SaveTime is not 0, the chief (worker 0) takes a checkpoint before the
	// stop.
	StopAsked struct {
		Reason   string        // who or what asked, as text for the verdict
		Code     int           // exit status of plx launch; 0 means exit.CodePlx
		Grace    time.Duration // time between asking tasks to stop and killing them; 0 kills at once
		SaveTime time.Duration // time limit for the checkpoint before the stop; 0 means no checkpoint
	}
	// Suspended reports that the driver process was suspended for a long time.
	// Hosts may have stopped their tasks because it did not renew their
	// leases.
	Suspended struct{ For time.Duration }
	// Elapsed reports that a timer, which a SetTimer command has set, has
	// expired.
	Elapsed struct{ Timer Timer }
)

func (e Up) about() int      { return e.Host }
func (e Silent) about() int  { return e.Host }
func (e Lost) about() int    { return e.Host }
func (e Heard) about() int   { return e.Host }
func (StopAsked) about() int { return -1 }
func (Suspended) about() int { return -1 }
func (Elapsed) about() int   { return -1 }

// Timer is the name of a timer. Setting a timer that is already running
// restarts it.
type Timer string

// The names of the timers.
const (
	startTimer   Timer = "start"   // limits the time until all tasks have started
	maxTimer     Timer = "max"     // limits the job's run time (--max-time)
	settleTimer  Timer = "settle"  // after a failure: ends the time in which further failures are collected
	doubtTimer   Timer = "doubt"   // a worker has failed and named a peer as lost: ends the wait for that peer to fail, too
	stopTimer    Timer = "stop"    // limits the time until tasks that were asked to stop have ended
	saveTimer    Timer = "save"    // limits the checkpoint before a stop
	hangTimer    Timer = "hang"    // begins the next step of the hang detection (package hang)
	scaleTimer   Timer = "scale"   // limits the current phase of a change of hosts (plx scale)
	steadyTimer  Timer = "steady"  // expires when the generation has run so long that earlier failures no longer count
	backoffTimer Timer = "backoff" // expires when the backoff time (delay before a restart) is over
	reviveTimer  Timer = "revive"  // limits the wait for new agents on lost hosts that the driver can reach
	waitTimer    Timer = "wait"    // limits the wait for lost hosts to come back (--wait-host)
	regroupTimer Timer = "regroup" // limits the time until every host has a connected agent or is lost
)

// hourTimer returns the timer that expires one hour after the n-th restart.
func hourTimer(n int) Timer { return Timer(fmt.Sprintf("hour %d", n)) }

// clearTimer returns the timer that expires when no process of the job can
// still run on the lost host h.
func clearTimer(h int) Timer { return Timer(fmt.Sprintf("clear %d", h)) }

// Command is an output of the state machine, which the driver carries out: one
// of the types below.
type Command interface{ command() }

// The commands.
type (
	// Send asks the driver to send a message to a host's agent. If there is no
	// connection, the driver drops the message. After the next Up event, the
	// state machine sends again the messages that are still needed.
	Send struct {
		Host    int
		Message protocol.Message
	}
	// SetTimer asks the driver to deliver the event Elapsed when the duration
	// After is over.
	SetTimer struct {
		Timer Timer
		After time.Duration
	}
	// Note asks the driver to print one line for the user.
	Note struct {
		Text    string
		Lasting bool // true if the line is also recorded in Verdict.Notices
	}
	// Hung reports that the job hangs: no task makes progress. Note commands
	// with the text for the user precede it.
	Hung struct{ Hang protocol.Hang }
	// Enter reports that the job has entered another phase.
	Enter struct{ Phase protocol.Phase }
	// Lay reports which tasks run on which hosts in a new generation (run of
	// all tasks after a restart or a change of hosts). It is not sent for the
	// first generation, whose placement is in the Plan.
	Lay struct {
		Generation int
		Hosts      []protocol.HostPlan
	}
	// Join adds a host to the job, with the next free index. The driver then
	// connects to its agent.
	Join struct {
		Host    int // index of the new host
		Joining protocol.Joining
	}
	// Leave removes a host from the job: the driver ends its agent. The state
	// machine ignores all later events of that host.
	Leave struct{ Host int }
	// Holding reports how long the chief (worker 0) has been paused for a
	// change of hosts.
	Holding struct{ For time.Duration }
	// Answer sends the result of a Scale request to the agent of a host. The
	// agent forwards it to the plx scale command that made the request. The
	// driver adds how long training was paused. It measures this time from the
	// command Holding on.
	Answer struct {
		Host   int // index of the host to whose agent the plx scale command is connected
		Scaled protocol.Scaled
	}
	// Conclude ends the job: the driver sends End, with the verdict, to every
	// agent.
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

// notice returns a command that prints a line for the user and also records it
// in Verdict.Notices.
func notice(format string, args ...any) []Command {
	return []Command{Note{Text: fmt.Sprintf(format, args...), Lasting: true}}
}

// timer returns a command that sets timer t. If after is 0 or negative, it
// returns nil.
func timer(t Timer, after time.Duration) []Command {
	if after <= 0 {
		return nil
	}
	return []Command{SetTimer{Timer: t, After: after}}
}

func send(h int, m protocol.Message) Command { return Send{Host: h, Message: m} }
