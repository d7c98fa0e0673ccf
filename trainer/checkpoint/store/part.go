package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/checkpoint/tensors"
	"github.com/plx-run/plx/trainer/checkpoint/transfer"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/exchange/transition"
	"github.com/plx-run/plx/trainer/lifetime"
	"github.com/plx-run/plx/trainer/safetensors"
)

// parts is this task's side of saves: what the trainer hands over, and what is
// written here of it.
type parts struct {
	config  Config
	life    *lifetime.Lifetime
	hook    func(place string) error // where tests put faults
	folder  *checkpoint.Folder
	files   *transfer.Files
	up      *mailbox        // to the chief
	leaving <-chan struct{} // closed: this task is about to end

	mu      sync.Mutex
	current *part                // nil: no save is under way here
	begun   chan struct{}        // closed, and replaced, when a save begins here
	early   *transition.Snapshot // of a save that has not begun here
	ahead   []tensors.State      // of saves that have not begun here, by step
}

func newParts(c Config, folder *checkpoint.Folder, life *lifetime.Lifetime, up *mailbox, leaving <-chan struct{}, hook func(string) error) *parts {
	p := &parts{config: c, life: life, hook: hook, folder: folder, up: up, leaving: leaving, begun: make(chan struct{})}
	p.files = transfer.New(transfer.Config{Peers: c.Peers, Cluster: c.Cluster, Folder: folder, Silence: c.Silence,
		Saves: p, Name: c.name, Hook: hook}, life)
	return p
}

// part is this task's part in one save.
type part struct {
	id      string // of the checkpoint
	step    uint64
	number  uint64 // of the snapshot
	wanted  wanted
	cancel  context.CancelCauseFunc
	pieces  chan transition.Snapshot // room for the one that is wanted
	state   chan tensors.State       // room for the one that is wanted
	running sync.WaitGroup           // whoever writes files of the checkpoint here
}

// save takes a shard holder's copy of its pieces.
func (p *parts) save(s transition.Snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.current; c != nil && c.compare(s) <= 0 {
		give(c.pieces, s, c.compare(s) == 0 && c.wanted.Pieces)
		return
	}
	p.early = &s // the chief's announcement is on its way
}

// compare orders a snapshot and the one that the part wants: a snapshot of an
// earlier save may come late, one of the next save early.
func (p *part) compare(s transition.Snapshot) int {
	return cmp.Or(cmp.Compare(s.Step, p.step), cmp.Compare(s.Number, p.number))
}

// mostAhead is how many states wait for a save: that of the save which the chief
// is about to announce, and that of the last step, which a worker brings unasked.
const mostAhead = 2

// saveCarried takes what a worker carries.
func (p *parts) saveCarried(s tensors.State) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.current; c != nil && c.step >= s.Step {
		give(c.state, s, c.step == s.Step && c.wanted.State)
		return
	}
	p.ahead = append(p.ahead, s)
	p.ahead = p.ahead[max(0, len(p.ahead)-mostAhead):]
}

// give hands over what is wanted once at most.
func give[T any](to chan T, x T, wanted bool) {
	if !wanted {
		return
	}
	select {
	case to <- x:
	default:
	}
}

// begin starts this task's part in a save. An earlier save is over for the
// chief.
func (p *parts) begin(ctx context.Context, m message) error {
	if m.Wanted == nil {
		return errors.New("a save that wants nothing")
	}
	p.cancel(errors.New("the next save has begun"))
	ctx, cancel := context.WithCancelCause(ctx)
	c := &part{id: m.ID, step: m.Step, number: m.Number, wanted: *m.Wanted, cancel: cancel,
		pieces: make(chan transition.Snapshot, 1), state: make(chan tensors.State, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current = c
	close(p.begun)
	p.begun = make(chan struct{})
	if s := p.early; s != nil && c.compare(*s) <= 0 {
		give(c.pieces, *s, c.compare(*s) == 0)
		p.early = nil
	}
	for len(p.ahead) > 0 && p.ahead[0].Step <= c.step {
		give(c.state, p.ahead[0], p.ahead[0].Step == c.step)
		p.ahead = p.ahead[1:]
	}
	if c.wanted.Pieces {
		p.work(c, func() { p.report(c, p.writePieces(ctx, c)) })
	}
	if c.wanted.State {
		p.work(c, func() { p.report(c, p.writeState(ctx, c)) })
	}
	return nil
}

// work runs f on a goroutine that the part waits for. It reports false if this
// task is ending.
func (p *parts) work(c *part, f func()) bool {
	c.running.Add(1)
	started := p.life.Go(func(context.Context) {
		defer c.running.Done()
		f()
	})
	if !started {
		c.running.Done()
	}
	return started
}

// Join is that of transfer.Saves: a task may bring its own files, while the
// save of the checkpoint is under way here or about to begin.
func (p *parts) Join(ctx context.Context, from cluster.Task, id, file string) (leave func(), err error) {
	if file != tensors.FileName(from, false) && file != tensors.FileName(from, true) {
		return nil, fmt.Errorf("a copy of a file that is not %s's", from)
	}
	most := p.config.Silence / 2 // nobody reads the connection meanwhile
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("checkpoint %s is not being saved here", id))
	defer cancel()
	for {
		p.mu.Lock()
		if c := p.current; c != nil && c.id == id {
			c.running.Add(1)
			p.mu.Unlock()
			return c.running.Done, nil
		}
		begun := p.begun
		p.mu.Unlock()
		select {
		case <-begun:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// cancel ends what is under way here.
func (p *parts) cancel(why error) {
	if c := p.drop(func(*part) bool { return true }); c != nil {
		c.cancel(why)
	}
}

// drop forgets the current part and returns it, if it is the one that is meant.
func (p *parts) drop(meant func(*part) bool) *part {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.current
	if c == nil || !meant(c) {
		return nil
	}
	p.current = nil
	return c
}

// busy names the checkpoint that is being written; empty: none.
func (p *parts) busy() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return ""
	}
	return p.current.id
}

// finish takes the chief's word that a save is over.
func (p *parts) finish(m message) {
	c := p.drop(func(c *part) bool { return c.id == m.ID })
	if c != nil {
		c.cancel(errors.New("the save has failed elsewhere"))
	}
	if !m.Remove {
		return
	}
	p.life.Go(func(context.Context) {
		if c != nil {
			c.running.Wait() // or a file would appear after its removal
		}
		if err := p.folder.Discard(m.ID); err != nil {
			p.config.logf(slog.LevelDebug, "checkpoints of %s: %v", p.config.self(), err)
		}
	})
}

// commit writes the manifest of the save that is under way.
func (p *parts) commit(m message) error {
	if p.busy() != m.ID {
		return fmt.Errorf("checkpoint %s is not being saved here", m.ID)
	}
	manifest, err := checkpoint.DecodeManifest(m.Body)
	if err != nil {
		return err
	}
	if manifest.ID != m.ID {
		return fmt.Errorf("the manifest is of checkpoint %s", manifest.ID)
	}
	if err := p.folder.WriteManifest(manifest); err != nil {
		return err
	}
	return p.hook("store.ack")
}

// report tells the chief the outcome of this task's part.
func (p *parts) report(c *part, r report) {
	if err := p.hook("store.report"); err != nil {
		r = report{State: r.State, Err: failure(err)}
	}
	p.up.post(message{Kind: reported, ID: c.id, Report: &r})
}

// writePieces writes what the shard holder gives.
func (p *parts) writePieces(ctx context.Context, c *part) report {
	s, err := await(ctx, p.leaving, c.pieces, "the shard holder's values", p.config.Silence)
	if err != nil {
		return report{Err: failure(err)}
	}
	content, err := tensors.OfPieces(s)
	if err != nil {
		return report{Held: int64(s.Held), Err: failure(err)}
	}
	r := p.keep(ctx, c, tensors.FileName(p.config.Peers.Self, false), content)
	r.Held = int64(s.Held)
	return r
}

// writeState writes what the worker gives, whenever its next step is over.
func (p *parts) writeState(ctx context.Context, c *part) report {
	s, err := await(ctx, p.leaving, c.state, "the worker's state", 0)
	if err != nil {
		return report{State: true, Err: failure(err)}
	}
	name := tensors.FileName(p.config.Peers.Self, true)
	r := p.keep(ctx, c, name, tensors.OfState(s, name))
	r.State = true
	return r
}

// await waits for what the trainer gives, but not longer than most, if most is
// not zero.
func await[T any](ctx context.Context, leaving <-chan struct{}, from <-chan T, what string, most time.Duration) (x T, err error) {
	if most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, most, fmt.Errorf("%s did not come within %v", what, most))
		defer cancel()
	}
	select {
	case x = <-from:
		return x, nil
	case <-ctx.Done():
		return x, context.Cause(ctx)
	case <-leaving:
	}
	select {
	case x = <-from:
		return x, nil
	default:
		return x, fmt.Errorf("%w, %s will not come", errClosed, what)
	}
}

// keep writes a file here and brings the buddy a copy. No tensors, no file.
func (p *parts) keep(ctx context.Context, c *part, name string, content tensors.Content) report {
	if len(content.Tensors) == 0 {
		return report{}
	}
	r := report{Parts: content.Parts, Carried: content.Carried}
	file, err := p.write(ctx, c, name, content)
	if err == nil {
		r.File = &file
		if r.Copy = c.wanted.Buddy != nil; r.Copy {
			err = p.files.Copy(ctx, c.id, file, *c.wanted.Buddy)
		}
	}
	r.Err = failure(err)
	return r
}

// write writes a file of the checkpoint. It leaves a disk that takes too long
// to itself.
func (p *parts) write(ctx context.Context, c *part, name string, content tensors.Content) (checkpoint.File, error) {
	type written struct {
		size int64
		sum  string
		err  error
	}
	most := p.config.patience(content.Size())
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("not done after %v", most))
	defer cancel()
	done, task := make(chan written, 1), p.config.Peers.Self.String()
	metadata := map[string]string{"format": "plx", "job": p.config.Job, "checkpoint": c.id, "task": task}
	started := p.work(c, func() {
		size, sum, err := p.folder.Write(c.id, name, func(w io.Writer) error {
			if err := p.hook("store.write"); err != nil {
				return err
			}
			_, err := safetensors.Write(bounded{ctx, w}, metadata, content.Tensors)
			return err
		})
		done <- written{size, sum, err}
	})
	if !started {
		return checkpoint.File{}, errClosed
	}
	select {
	case w := <-done:
		return checkpoint.File{Name: name, Task: task, Size: w.size, Sum: w.sum}, w.err
	case <-ctx.Done():
		return checkpoint.File{}, fmt.Errorf("write %s: %w", name, context.Cause(ctx))
	}
}

// bounded writes until a context ends.
type bounded struct {
	ctx context.Context
	w   io.Writer
}

func (p bounded) Write(b []byte) (n int, err error) {
	const most = 1 << 20 // bytes between two looks at the context
	for len(b) > 0 && err == nil {
		if p.ctx.Err() != nil {
			return n, context.Cause(p.ctx)
		}
		var wrote int
		wrote, err = p.w.Write(b[:min(len(b), most)])
		n, b = n+wrote, b[wrote:]
	}
	return n, err
}
