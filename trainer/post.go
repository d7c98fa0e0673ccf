package trainer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// errRegroup is why the context of a task ends whose process is kept.
var errRegroup = errors.New("the generation is given up")

// post is a process's end of the control channel, for as long as it lives.
type post struct {
	control *cluster.Control // nil: there is no launcher
	regroup chan struct{}    // has a token: the generation is to be given up
	begin   chan beginning

	mu   sync.Mutex
	task *task // of the present generation; nil between two
}

// beginning is what the process is to be in the next generation.
type beginning struct {
	next   *cluster.Next
	socket *os.File // nil: none came
}

// report says hello, where there is a launcher. cancel is called when that says
// stop or is gone.
func (p *process) report(cancel context.CancelCauseFunc) (*post, error) {
	post := &post{regroup: make(chan struct{}, 1), begin: make(chan beginning, 1)}
	contract, launched, err := cluster.FromEnvironment(p.getenv)
	if err != nil || !launched || contract.ControlFD == 0 {
		return post, err
	}
	if post.control, err = contract.Control(); err != nil {
		return nil, err
	}
	if err := post.say(cluster.ControlMessage{Kind: cluster.Hello, Version: cluster.ControlVersion, Keeps: !p.config.fresh}); err != nil {
		return nil, err
	}
	go post.obey(cancel) // ends when close closes the channel
	return post, nil
}

func (p *post) say(m cluster.ControlMessage) error {
	if p.control == nil {
		return nil
	}
	return p.control.Send(m)
}

// failed says that the process is about to end.
func (p *post) failed(err error) error {
	p.say(cluster.ControlMessage{Kind: cluster.Failed, Cause: err.Error()}) // the exit status says it too
	return err
}

func (p *post) close() {
	if p.control != nil {
		p.control.Close() // the last word was said
	}
}

// enter makes t the task that the agent's words are for; nil between two.
func (p *post) enter(t *task) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.task = t
	if t != nil && len(p.regroup) > 0 {
		t.end(errRegroup)
	}
}

// obey hears what the agent says until the channel ends.
func (p *post) obey(cancel context.CancelCauseFunc) {
	for {
		m, socket, err := p.control.ReceiveSocket()
		switch {
		case err != nil:
			cancel(errAgentGone)
			return
		case m.Kind == cluster.Stop:
			cancel(errAgentSays)
		case m.Kind == cluster.Begin:
			p.take(beginning{m.Next, socket})
			socket = nil
		default:
			p.pass(m)
		}
		if socket != nil {
			socket.Close() // nothing else comes with one
		}
	}
}

// take keeps what the process is to be next; a second one is nobody's.
func (p *post) take(b beginning) {
	select {
	case p.begin <- b:
	default:
		b.close()
	}
}

func (b beginning) close() {
	if b.socket != nil {
		b.socket.Close() // it was not used
	}
}

// pass gives a message to the present task.
func (p *post) pass(m cluster.ControlMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case m.Kind == cluster.Regroup:
		select {
		case p.regroup <- struct{}{}:
		default: // asked twice
		}
		if p.task != nil {
			p.task.end(errRegroup)
		}
	case p.task != nil:
		p.task.obey(m)
	case m.Kind == cluster.Checkpoint:
		p.say(cluster.ControlMessage{Kind: cluster.Checkpoint, Request: m.Request, Cause: "training has not begun"}) // obey notices a dead channel
	}
}

// obey does what the agent asks a task for.
func (t *task) obey(m cluster.ControlMessage) {
	switch m.Kind {
	case cluster.Checkpoint:
		t.checkpoint(m)
	case cluster.Resume:
		if r := t.job.replica.Load(); r != nil && r.saver != nil {
			r.saver.resume(m.Request)
		}
	default:
		t.job.Logf(slog.LevelDebug, "the agent says %s, which this version does not know", m.Kind)
	}
}

// await waits for what the process is to be next. It beats, as a task does, and
// tells the agent, once that has asked for it, that nothing of the last
// generation is left here.
func (p *post) await(ctx context.Context) (beginning, error) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		if ctx.Err() != nil {
			return beginning{}, context.Cause(ctx)
		}
		m := cluster.ControlMessage{Kind: cluster.Heartbeat} // of no task: it has made no step
		select {
		case b := <-p.begin:
			return b, nil
		case <-ctx.Done():
			return beginning{}, context.Cause(ctx)
		case <-p.regroup:
			m.Kind = cluster.Waiting
		case <-ticker.C:
		}
		p.say(m) // obey notices a dead channel
	}
}

// become makes the process, its environment included, what it would have been
// if it had been started for the next generation.
func (p *process) become(b beginning) error {
	defer b.close()
	if b.next == nil || b.socket == nil {
		return errors.New("the agent did not say what is next")
	}
	if dir, err := os.Getwd(); err == nil && dir == os.Getenv("PWD") { // else the program has chosen another
		if err := os.Chdir(string(b.next.Dir)); err != nil {
			return fmt.Errorf("enter the working folder: %w", err)
		}
	}
	for _, pair := range b.next.Environ {
		name, value, _ := strings.Cut(string(pair), "=")
		if err := os.Setenv(name, value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	syscall.ForkLock.RLock() // until it is close-on-exec no child may be made
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Dup(int(b.socket.Fd()))
	if err != nil {
		return fmt.Errorf("take the listening socket: %w", err)
	}
	syscall.CloseOnExec(fd)
	return os.Setenv("PLX_LISTEN_FD", strconv.Itoa(fd)) // the door owns it from there
}
