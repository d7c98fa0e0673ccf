package depot

import (
	"context"
	"fmt"
	"os"

	"github.com/plx-run/plx/trainer/peers"
	"github.com/plx-run/plx/trainer/wire"
)

const maxRead = 16 << 20 // bytes that are asked for at once

// serveReads gives another task what it needs of files that are here.
func (d *Depot) serveReads(from peers.Peer) {
	served := d.during(func(ctx context.Context) {
		conn := wire.NewConn(from.Conn, d.config.Peers.Generation, d.config.Silence)
		defer conn.Close() // all was said, or it is cut
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		defer stop()
		r := reading{depot: d, conn: conn}
		defer r.close()
		for r.answer() == nil {
		}
	})
	if !served {
		from.Conn.Close() // this task is ending
	}
}

// reading is a connection on which parts of files are asked for, usually of
// one after the other.
type reading struct {
	depot    *Depot
	conn     *wire.Conn
	file     *os.File // nil: none
	id, name string
}

func (r *reading) close() {
	if r.file != nil {
		r.file.Close() // opened for reading: nothing to lose
	}
}

// answer takes one question. An error ends the connection.
func (r *reading) answer() error {
	m, err := receiveMessage(r.conn, maxSmall)
	if err != nil {
		return err
	}
	if m.Kind != read || m.File == nil {
		return fmt.Errorf("unexpected %q message", m.Kind)
	}
	w := newWatch(r.conn, 2*r.depot.config.Silence) // who asks is to lose patience first
	defer w.stop()
	if err := r.open(m); err != nil {
		return sendMessage(r.conn, message{Kind: bytesOf, Err: failure(err)})
	}
	if err := sendMessage(r.conn, message{Kind: bytesOf, Length: m.Length}); err != nil {
		return err
	}
	return sendChunks(r.conn, w, r.file, m.Offset, m.Length)
}

// open makes r.file the file that is asked for and sees to it that it has what
// is asked for.
func (r *reading) open(m message) error {
	if err := r.depot.hook("depot.read"); err != nil {
		return err
	}
	if r.file == nil || r.id != m.ID || r.name != m.File.Name {
		r.close()
		r.file = nil
		file, err := r.depot.folder.Open(m.ID, m.File.Name)
		if err != nil {
			return err
		}
		r.file, r.id, r.name = file, m.ID, m.File.Name
	}
	info, err := r.file.Stat()
	switch {
	case err != nil:
		return err
	case m.Offset < 0 || m.Length < 0 || m.Length > maxRead || m.Offset > info.Size()-m.Length:
		return fmt.Errorf("checkpoint %s: %d bytes of %s from %d on, it has %d: want at most %d, inside of it",
			m.ID, m.Length, m.File.Name, m.Offset, info.Size(), maxRead)
	}
	return nil
}
