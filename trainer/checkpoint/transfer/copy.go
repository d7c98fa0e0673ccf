package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
)

// Copy brings a task a copy of a file that was written here, and compares what
// that task has written with it.
func (f *Files) Copy(ctx context.Context, id string, file checkpoint.File, to cluster.Task) error {
	if err := f.bring(ctx, id, file, to); err != nil {
		return fmt.Errorf("second copy of %s at %s: %w", file.Name, f.config.Name(to), peers.Lost(err))
	}
	return nil
}

func (f *Files) bring(ctx context.Context, id string, file checkpoint.File, to cluster.Task) error {
	if err := f.config.Hook("store.send"); err != nil {
		return err
	}
	from, err := f.config.Folder.Open(id, file.Name)
	if err != nil {
		return err
	}
	defer from.Close() // opened for reading: nothing to lose
	s, err := f.dial(ctx, to, copyPurpose)
	if err != nil {
		return err
	}
	defer s.CloseWith(ctx)()
	w := newWatch(s, f.config.Silence)
	defer w.stop()
	var answer message
	answered := make(chan error, 1)
	var hearing sync.WaitGroup
	hearing.Go(func() {
		var err error
		answer, err = receive(s)
		answered <- err
	})
	defer hearing.Wait()
	defer s.Close() // ends hearing
	sent := send(s, message{Kind: copied, ID: id, File: &file})
	if sent == nil {
		sent = sendChunks(s, w, from, 0, file.Size)
	}
	w.extend(Patience(f.config.Silence, file.Size)) // the copy has to reach the disk
	if sent != nil {
		w.extend(time.Second) // the other task's own words say more, if they come
	}
	switch err := <-answered; {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && answer.Err != "":
		return errors.New(answer.Err)
	case sent != nil:
		return w.explain(sent)
	case err != nil:
		return w.explain(err)
	}
	return same(file, answer)
}

// same wants a copy to be what was sent.
func same(file checkpoint.File, answer message) error {
	if answer.Kind != stored || answer.File == nil {
		return fmt.Errorf("unexpected %q message", answer.Kind)
	}
	if got := answer.File; got.Size != file.Size || got.Sum != file.Sum {
		return fmt.Errorf("it has %d bytes of sum %.12s, %d bytes of sum %.12s were sent", got.Size, got.Sum, file.Size, file.Sum)
	}
	return nil
}

// receiveCopy keeps a copy of another task's file.
func (f *Files) receiveCopy(from peers.Peer) {
	served := f.life.Do(func(ctx context.Context) {
		s := f.session(from)
		defer s.Close() // of no more use
		defer s.CloseWith(ctx)()
		w := newWatch(s, 2*f.config.Silence) // the sender loses patience first, and names the cause
		defer w.stop()
		drained := make(chan struct{})
		drain := sync.OnceFunc(func() {
			go func() {
				defer close(drained)
				s.Drain()
			}()
		})
		file, err := f.accept(ctx, from.Task, s, w, drain)
		w.extend(farewell)
		drain()
		if send(s, message{Kind: stored, File: &file, Err: failure(w.explain(err))}) != nil {
			s.Close() // the sender is gone
		}
		<-drained // until the sender, which has the answer, hangs up
	})
	if !served {
		from.Conn.Close() // this task is ending
	}
}

// accept writes the file that comes. It calls received when all of it has come
// and goes to the disk, which may take longer than a connection that nobody
// reads stays open.
func (f *Files) accept(ctx context.Context, from cluster.Task, s *peers.Session, w *watch, received func()) (file checkpoint.File, err error) {
	m, err := receive(s)
	if err != nil {
		return file, err
	}
	if m.Kind != copied || m.File == nil || m.File.Size < 0 || m.File.Size > maxFile {
		return file, fmt.Errorf("unexpected %q message, or of a file that is not %s's", m.Kind, from)
	}
	name, size := m.File.Name, m.File.Size
	leave, err := f.config.Saves.Join(ctx, from, m.ID, name)
	if err != nil {
		return file, err
	}
	defer leave()
	file = checkpoint.File{Name: name, Task: from.String()}
	file.Size, file.Sum, err = f.config.Folder.Write(m.ID, name, func(to io.Writer) error {
		if err := f.config.Hook("store.copy"); err != nil {
			return err
		}
		if err := receiveFile(s, w, to, size); err != nil {
			return err
		}
		received()
		w.extend(2 * Patience(f.config.Silence, size))
		return f.config.Hook("store.flush")
	})
	return file, err
}
