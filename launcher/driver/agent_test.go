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

// agent is a host's agent with tasks that are made of nothing. Its fields are
// changed with mu held.
type agent struct {
	t     *testing.T
	name  string
	tasks []cluster.Task // of the present generation

	mu    sync.Mutex
	phase protocol.Phase
	gen   int
	exits map[cluster.Task]*protocol.Exit
	conn  *protocol.Conn // the present one
	dials int
	got   []protocol.Message // all but Renew
	times []time.Time        // when each of got came
	renew time.Time          // when the last Renew came
	lives int                // how often it was revived
	hangs bool               // revive does so now
	wg    sync.WaitGroup
	specs []protocol.TaskSpec // of the first generation

	// What is wrong with the agent.
	noAgent   bool   // it is gone
	mute      bool   // it reads and never answers
	deaf      bool   // it does not even read
	unreached bool   // dialling hangs
	flaps     bool   // it closes each connection at once
	stillborn error  // it says so on the first connection, and is gone
	stubborn  bool   // it does not end
	vanishes  bool   // at End it closes the connection and is gone, without a word
	slow      bool   // tasks that are told to end do not
	down      bool   // no new agent can be started
	hung      bool   // starting one takes for ever
	raw       string // it sends that on each connection
	clumsy    string // the first request of each kind, or its answer, is lost with the connection
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

// dying is a connection whose end says why.
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
		io.WriteString(stream, a.raw) // the driver closes the connection
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

// handle answers a message; false ends the connection.
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

// first reports whether m is the first request of its kind. mu is held.
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

// act goes on to the phase that a request asks for. mu is held.
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
	s := protocol.State{Host: a.name, Addr: a.name + ":99", Phase: a.phase, Generation: a.gen, Tasks: map[string]*protocol.TaskNow{}}
	for _, t := range a.tasks {
		s.Tasks[t.String()] = &protocol.TaskNow{Exit: a.exits[t]}
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
			a.exit(protocol.Exit{Task: t, Started: true, Told: true})
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
	conn.Send(a.state()) // whether or not the driver still listens
	conn.Send(protocol.Message{Logged: &protocol.Logged{Data: []byte("abc")}})
	conn.Send(protocol.Message{Made: &protocol.Made{Files: len(a.specs)}})
	return false
}

// exit ends a task and tells the driver, if there is one.
func (a *agent) exit(e protocol.Exit) {
	a.mu.Lock()
	conn, ended := a.conn, a.exits[e.Task] != nil
	e.Generation = a.gen
	if !ended {
		a.exits[e.Task] = &e
	}
	a.mu.Unlock()
	if conn != nil && !ended {
		conn.Send(protocol.Message{Exited: &e}) // else State tells it
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

// heard returns the messages of one kind and when each came.
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
