package driver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/launcher/driver"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// agent simulates a host's agent with simulated tasks. The fields are guarded
// by mu.
type agent struct {
	t     *testing.T
	name  string
	tasks []cluster.Task // tasks of the current generation

	mu    sync.Mutex
	phase protocol.Phase
	gen   int
	exits map[cluster.Task]*protocol.Exit
	conn  *protocol.Conn // the present one
	dials int
	got   []protocol.Message // all but Renew
	times []time.Time        // when each message in got arrived
	renew time.Time          // when the last Renew message arrived
	lives int                // number of times that a new agent was started
	hangs bool               // revive does so now
	wg    sync.WaitGroup
	specs []protocol.TaskSpec // tasks of the first generation

	// Faults that a test has set for the agent; all false or empty for a healthy agent.
	noAgent   bool   // no agent runs on the host
	mute      bool   // the agent reads messages and never replies
	deaf      bool   // the agent does not read messages
	unreached bool   // dialing the host hangs
	flaps     bool   // the agent closes each connection at once
	stillborn error  // error of the first connection, after which the agent no longer runs
	stubborn  bool   // the agent ignores End
	vanishes  bool   // on End, the agent closes the connection and no longer runs, without a reply
	slow      bool   // the tasks ignore requests to end
	down      bool   // no new agent can be started
	hung      bool   // starting a new agent blocks forever
	raw       string // bytes that the agent sends on each connection instead of messages
	clumsy    string // the first request of each kind, or the reply to it, is lost with the connection
}

func newAgent(t *testing.T, name string, tasks ...string) *agent {
	a := &agent{t: t, name: name, phase: protocol.Idle, exits: map[cluster.Task]*protocol.Exit{}}
	for _, text := range tasks {
		a.tasks = append(a.tasks, task(text))
	}
	a.specs = specs(a.tasks)
	t.Cleanup(a.wg.Wait)
	return a
}

func specs(tasks []cluster.Task) []protocol.TaskSpec {
	var all []protocol.TaskSpec
	for _, t := range tasks {
		all = append(all, protocol.TaskSpec{Task: t})
	}
	return all
}

func task(text string) cluster.Task {
	t, err := cluster.ParseTask(text)
	if err != nil {
		panic(err)
	}
	return t
}

func (a *agent) set(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// dial is the driver's Dialer.
func (a *agent) dial(ctx context.Context) (*protocol.Conn, error) {
	a.mu.Lock()
	a.dials++
	noAgent, unreached, flaps, stillborn := a.noAgent || a.stillborn != nil && a.dials > 1, a.unreached, a.flaps, a.stillborn
	a.mu.Unlock()
	switch {
	case noAgent:
		return nil, fmt.Errorf("connect: %w", driver.ErrNoAgent)
	case unreached:
		<-ctx.Done()
		return nil, errors.New("dial: no route to host")
	}
	ours, theirs := net.Pipe()
	a.wg.Go(func() { a.serve(theirs, flaps || stillborn != nil) })
	if stillborn != nil {
		return protocol.Open(dying{ours, stillborn})
	}
	return protocol.Open(ours)
}

// dying is a connection that ends with a given error.
type dying struct {
	net.Conn
	why error
}

func (d dying) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	if err != nil {
		err = d.why
	}
	return n, err
}

// revive is the driver's Reviver.
func (a *agent) revive(ctx context.Context) (*protocol.Conn, error) {
	a.mu.Lock()
	if a.hung {
		a.hangs = true
		a.mu.Unlock()
		<-ctx.Done()
		a.set(func() { a.hangs = false })
		return nil, ctx.Err()
	}
	if a.down {
		a.mu.Unlock()
		return nil, errors.New("dial: no route to host")
	}
	a.lives++
	a.phase, a.gen, a.tasks, a.exits = protocol.Idle, 0, nil, map[cluster.Task]*protocol.Exit{}
	a.noAgent, a.mute, a.deaf, a.unreached = false, false, false, false
	a.mu.Unlock()
	return a.dial(ctx)
}

func (a *agent) serve(stream net.Conn, flaps bool) {
	conn, err := protocol.Open(stream)
	if err != nil {
		a.t.Errorf("agent %s: %v", a.name, err)
		return
	}
	defer conn.Close()
	if flaps {
		return
	}
	if a.raw != "" {
		io.WriteString(stream, a.raw) // error ignored: the driver may close the connection
	}
	a.set(func() { a.conn = conn })
	for {
		for a.isDeaf() {
			time.Sleep(time.Second)
			stream.SetReadDeadline(time.Now())
			if _, err := stream.Read(nil); err == io.EOF { // closed by the driver
				return
			}
			stream.SetReadDeadline(time.Time{})
		}
		m, err := conn.Receive()
		if err != nil || !a.handle(conn, m) {
			return
		}
	}
}

func (a *agent) isDeaf() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.deaf
}

// handle replies to a message. If it returns false, the connection ends.
func (a *agent) handle(conn *protocol.Conn, m protocol.Message) bool {
	a.mu.Lock()
	if m.Renew == nil {
		a.got, a.times = append(a.got, m), append(a.times, time.Now())
	} else {
		a.renew = time.Now()
	}
	mute, clumsy := a.mute, a.clumsy != "" && a.first(m)
	if clumsy && a.clumsy == "answers" {
		a.act(m)
	}
	a.mu.Unlock()
	if clumsy {
		return false
	}
	if mute {
		return true
	}
	switch {
	case m.Attach != nil:
		return conn.Send(a.state()) == nil
	case m.Renew != nil:
		return conn.Send(protocol.Message{Renewed: m.Renew}) == nil
	case m.Prepare != nil:
		a.set(func() { a.act(m) })
		return conn.Send(a.prepared()) == nil
	case m.Check != nil:
		return conn.Send(protocol.Message{Checked: &protocol.Checked{Generation: m.Check.Generation}}) == nil
	case m.Start != nil:
		a.set(func() { a.act(m) })
		return conn.Send(protocol.Message{Started: &protocol.Started{Generation: m.Start.Generation}}) == nil
	case m.Stop != nil:
		a.stop(m.Stop.Tasks)
	case m.End != nil:
		return a.end(conn)
	}
	return true
}

// first reports whether m is the first request of its kind. The caller must
// hold mu.
func (a *agent) first(m protocol.Message) bool {
	n := 0
	for _, old := range a.got {
		if kind(old) == kind(m) {
			n++
		}
	}
	return n == 1 && kind(m) != "other"
}

func kind(m protocol.Message) string {
	switch {
	case m.Attach != nil:
		return "attach"
	case m.Prepare != nil:
		return "prepare"
	case m.Check != nil:
		return "check"
	case m.Start != nil:
		return "start"
	}
	return "other"
}

// act enters the phase that request m asks for. The caller must hold mu.
func (a *agent) act(m protocol.Message) {
	switch {
	case m.Prepare != nil:
		if a.phase = protocol.Ready; m.Prepare.Generation > a.gen {
			a.exits = map[cluster.Task]*protocol.Exit{}
		}
		a.gen, a.tasks = m.Prepare.Generation, nil
		for _, t := range m.Prepare.Tasks {
			a.tasks = append(a.tasks, t.Task)
		}
	case m.Start != nil:
		a.phase = protocol.Running
	}
}

func (a *agent) state() protocol.Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := protocol.State{Host: a.name, Addr: a.name + ":99", Phase: a.phase, Generation: a.gen, Tasks: map[string]*protocol.TaskState{}}
	for _, t := range a.tasks {
		s.Tasks[t.String()] = &protocol.TaskState{Exit: a.exits[t]}
	}
	return protocol.Message{State: &s}
}

func (a *agent) prepared() protocol.Message {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := protocol.Prepared{Generation: a.gen, Open: map[cluster.Task]string{}}
	for i, t := range a.tasks {
		p.Open[t] = fmt.Sprintf("%s:%d", a.name, 1000+i)
	}
	return protocol.Message{Prepared: &p}
}

func (a *agent) stop(tasks []cluster.Task) {
	a.mu.Lock()
	slow, all := a.slow, a.tasks
	a.mu.Unlock()
	for _, t := range all {
		if !slow && (len(tasks) == 0 || slices.Contains(tasks, t)) {
			a.exit(protocol.Exit{Task: t, Started: true, StopRequested: true})
		}
	}
}

func (a *agent) end(conn *protocol.Conn) bool {
	a.mu.Lock()
	stubborn, vanishes := a.stubborn, a.vanishes
	a.mu.Unlock()
	if stubborn {
		return true
	}
	a.set(func() { a.noAgent = true })
	if vanishes {
		return false
	}
	a.set(func() { a.phase = protocol.Over })
	conn.Send(a.state()) // error ignored: the driver may have closed the connection
	conn.Send(protocol.Message{Logged: &protocol.Logged{Data: []byte("abc")}})
	conn.Send(protocol.Message{Made: &protocol.FileCounts{Files: len(a.specs)}})
	return false
}

// exit ends a task, and reports that to the driver if it is connected.
func (a *agent) exit(e protocol.Exit) {
	a.mu.Lock()
	conn, ended := a.conn, a.exits[e.Task] != nil
	e.Generation = a.gen
	if !ended {
		a.exits[e.Task] = &e
	}
	a.mu.Unlock()
	if conn != nil && !ended {
		conn.Send(protocol.Message{Exited: &e}) // error ignored: after a reconnection, State reports the exit
	}
}

// say sends a notice.
func (a *agent) say(text string) {
	a.mu.Lock()
	conn := a.conn
	a.mu.Unlock()
	if err := conn.Send(protocol.Message{Notice: text}); err != nil {
		a.t.Error(err)
	}
}

// cut closes the connection.
func (a *agent) cut() {
	a.mu.Lock()
	conn := a.conn
	a.conn = nil
	a.mu.Unlock()
	conn.Close()
}

// heard returns the received messages of one kind, and when each arrived.
func (a *agent) heard(kind func(protocol.Message) bool) (ms []protocol.Message, times []time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, m := range a.got {
		if kind(m) {
			ms, times = append(ms, m), append(times, a.times[i])
		}
	}
	return ms, times
}

func isStop(m protocol.Message) bool  { return m.Stop != nil && m.Stop.Tasks == nil }
func isStart(m protocol.Message) bool { return m.Start != nil }
func isEnd(m protocol.Message) bool   { return m.End != nil }
