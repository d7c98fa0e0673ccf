package store

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/checkpoint/tensors"
	"github.com/plx-run/plx/trainer/safetensors"
)

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
