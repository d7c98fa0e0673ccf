package jobstate

import (
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/protocol"
)

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
		Lasting bool
	}
	// Enter announces the phase that the job is in from now on.
	Enter struct{ Phase protocol.Phase }
	// Lay announces where the tasks of a generation after the first run.
	Lay struct {
		Generation int
		Hosts      []protocol.HostPlan
	}
	// Join adds a host with the next index. The driver connects to its agent.
	Join struct {
		Host    int
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
		Host   int
		Scaled protocol.Scaled
	}
	// Conclude ends the job: the driver sends End to every agent.
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

// count is n with a noun, in the plural unless n is 1.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
