package depot

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
	"github.com/plx-run/plx/trainer/wire"
)

const (
	chunkSize = 1 << 20  // of a file, in one frame
	maxFile   = 1 << 50  // bytes
	maxSmall  = 64 << 10 // bytes of a message between two tasks
)

// sendCopy brings a task a copy of a file that was written here. What it has
// in the end must be the same.
func (d *Depot) sendCopy(ctx context.Context, p *part, file checkpoint.File, to cluster.Task) error {
	if err := d.bring(ctx, p, file, to); err != nil {
		return fmt.Errorf("second copy of %s at %s: %w", file.Name, d.config.name(to), peers.Lost(err))
	}
	return nil
}

func (d *Depot) bring(ctx context.Context, p *part, file checkpoint.File, to cluster.Task) error {
	if err := d.hook("depot.send"); err != nil {
		return err
	}
	from, err := d.folder.Open(p.id, file.Name)
	if err != nil {
		return err
	}
	defer from.Close() // opened for reading: nothing to lose
	conn, err := d.reach(ctx, to, copyPurpose)
	if err != nil {
		return err
	}
	defer conn.Close() // all was said, or it is cut
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	w := newWatch(conn, d.config.Silence)
	defer w.stop()
	var kept message
	answered := make(chan error, 1)
	var hearing sync.WaitGroup
	hearing.Go(func() {
		var err error
		kept, err = receiveMessage(conn, maxSmall)
		answered <- err
	})
	defer hearing.Wait()
	defer conn.Close() // ends it
	sent := sendFile(conn, w, message{Kind: copied, ID: p.id, File: &file}, from)
	w.extend(d.config.patience(file.Size)) // it may have to reach the disk first
	if sent != nil {
		w.extend(time.Second) // the other end's own words say more, when they come
	}
	switch err := <-answered; {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && kept.Err != "":
		return errors.New(kept.Err)
	case sent != nil:
		return w.explain(sent)
	case err != nil:
		return w.explain(err)
	}
	return same(file, kept)
}

// same wants a copy to be what was sent.
func same(file checkpoint.File, kept message) error {
	if kept.Kind != stored || kept.File == nil {
		return fmt.Errorf("unexpected %q message", kept.Kind)
	}
	if kept.File.Size != file.Size || kept.File.Sum != file.Sum {
		return fmt.Errorf("it has %d bytes of sum %.12s, %d bytes of sum %.12s were sent", kept.File.Size, kept.File.Sum, file.Size, file.Sum)
	}
	return nil
}

// sendFile sends a message and the bytes of its File.
func sendFile(conn *wire.Conn, w *watch, m message, from io.ReaderAt) error {
	if err := sendMessage(conn, m); err != nil {
		return err
	}
	return sendChunks(conn, w, from, 0, m.File.Size)
}

// sendChunks sends length bytes from offset on.
func sendChunks(conn *wire.Conn, w *watch, from io.ReaderAt, offset, length int64) error {
	buffer := make([]byte, min(length, chunkSize))
	for length > 0 {
		b := buffer[:min(length, chunkSize)]
		if n, err := from.ReadAt(b, offset); n < len(b) {
			return fmt.Errorf("read: %w", err)
		}
		if err := conn.Send(wire.Frame{Header: wire.Header{Kind: wire.Chunk, Offset: uint64(offset)}, Payload: b}); err != nil {
			return err
		}
		w.extend(0)
		offset, length = offset+int64(len(b)), length-int64(len(b))
	}
	return nil
}

// receiveChunk reads the next chunk, which must begin at an offset, into b and
// returns its length.
func receiveChunk(conn *wire.Conn, offset int64, b []byte) (int, error) {
	h, err := conn.Next()
	if err != nil {
		return 0, err
	}
	if h.Kind != wire.Chunk || h.Offset != uint64(offset) || h.Length == 0 || h.Length > uint64(min(len(b), chunkSize)) {
		return 0, fmt.Errorf("unexpected %s frame of %d bytes from %d on, want a chunk from %d on", h.Kind, h.Length, h.Offset, offset)
	}
	return int(h.Length), conn.Payload(b[:h.Length])
}

// reach connects to another task's depot.
func (d *Depot) reach(ctx context.Context, to cluster.Task, purpose string) (*wire.Conn, error) {
	c := d.config
	ctx, cancel := context.WithTimeoutCause(ctx, c.Silence, fmt.Errorf("not reached within %v", c.Silence))
	defer cancel()
	raw, err := peers.Dial(ctx, c.Peers, to, c.Cluster.Addr(to), purpose)
	if err != nil {
		return nil, err
	}
	return wire.NewConn(raw, c.Peers.Generation, c.Silence), nil
}

// receiveCopy keeps a copy of another task's file.
func (d *Depot) receiveCopy(from peers.Peer) {
	served := d.during(func(ctx context.Context) {
		conn := wire.NewConn(from.Conn, d.config.Peers.Generation, d.config.Silence)
		defer conn.Close() // all was said, or it is cut
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		defer stop()
		w := newWatch(conn, 2*d.config.Silence) // the sender is to lose patience first: it says why
		defer w.stop()
		drained := make(chan struct{})
		drain := sync.OnceFunc(func() {
			go func() {
				defer close(drained)
				conn.Drain()
			}()
		})
		file, err := d.accept(ctx, from.Task, conn, w, drain)
		w.extend(farewell)
		drain()
		if sendMessage(conn, message{Kind: stored, File: &file, Err: failure(w.explain(err))}) != nil {
			conn.Close() // whoever sent it is gone
		}
		<-drained // until the other end, which has the answer, hangs up
	})
	if !served {
		from.Conn.Close() // this task is ending
	}
}

// accept writes the file that comes. It calls received when all has come and
// is to reach the disk, which may take longer than a connection that nobody
// reads is left open.
func (d *Depot) accept(ctx context.Context, task cluster.Task, conn *wire.Conn, w *watch, received func()) (file checkpoint.File, err error) {
	m, err := receiveMessage(conn, maxSmall)
	if err != nil {
		return file, err
	}
	f := m.File
	if m.Kind != copied || f == nil || f.Size < 0 || f.Size > maxFile || (f.Name != fileName(task, false) && f.Name != fileName(task, true)) {
		return file, fmt.Errorf("unexpected %q message, or of a file that is not %s's", m.Kind, task)
	}
	p, err := d.expect(ctx, m.ID)
	if err != nil {
		return file, err
	}
	defer p.running.Done()
	file = checkpoint.File{Name: f.Name, Task: task.String()}
	file.Size, file.Sum, err = d.folder.Write(p.id, f.Name, func(to io.Writer) error {
		if err := d.hook("depot.copy"); err != nil {
			return err
		}
		err := receiveFile(conn, w, to, f.Size)
		if err != nil {
			return err
		}
		received()
		w.extend(2 * d.config.patience(f.Size))
		return d.hook("depot.flush")
	})
	return file, err
}

func receiveFile(conn *wire.Conn, w *watch, to io.Writer, size int64) error {
	buffer := make([]byte, min(size, chunkSize))
	for at := int64(0); at < size; {
		n, err := receiveChunk(conn, at, buffer[:min(size-at, chunkSize)])
		if err != nil {
			return err
		}
		w.extend(0)
		if _, err := to.Write(buffer[:n]); err != nil {
			return err
		}
		at += int64(n)
	}
	return nil
}

// expect returns the part in the save of a checkpoint, which may be about to
// begin here. The caller is counted in p.running.
func (d *Depot) expect(ctx context.Context, id string) (*part, error) {
	most := d.config.Silence / 2 // nobody reads the connection meanwhile
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("checkpoint %s is not being saved here", id))
	defer cancel()
	for {
		d.mu.Lock()
		if p := d.part; p != nil && p.id == id {
			p.running.Add(1)
			d.mu.Unlock()
			return p, nil
		}
		begun := d.begun
		d.mu.Unlock()
		select {
		case <-begun:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
