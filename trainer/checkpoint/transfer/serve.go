package transfer

import (
	"context"
	"fmt"
	"os"

	"github.com/plx-run/plx/trainer/peers"
)

const maxRead = 16 << 20 // bytes that a task asks for at a time

// serveReads gives another task the ranges of files that it asks for.
func (f *Files) serveReads(from peers.Peer) {
	served := f.life.Do(func(ctx context.Context) {
		s := f.session(from)
		defer s.Close() // of no more use
		defer s.CloseWith(ctx)()
		r := reading{files: f, session: s}
		defer r.close()
		for r.answer() == nil {
		}
	})
	if !served {
		from.Conn.Close() // this task is ending
	}
}

// reading is a session on which another task asks for ranges of files, usually
// of one file after the other.
type reading struct {
	files    *Files
	session  *peers.Session
	file     *os.File // that was asked for last; nil: none
	id, name string   // of file
}

func (r *reading) close() {
	if r.file != nil {
		r.file.Close() // opened for reading: nothing to lose
	}
}

// answer takes one question. An error ends the session.
func (r *reading) answer() error {
	m, err := receive(r.session)
	if err != nil {
		return err
	}
	if m.Kind != read || m.File == nil {
		return fmt.Errorf("unexpected %q message", m.Kind)
	}
	w := newWatch(r.session, 2*r.files.config.Silence) // the other task loses patience first
	defer w.stop()
	if err := r.open(m); err != nil {
		return send(r.session, message{Kind: bytesOf, Err: failure(err)})
	}
	if err := send(r.session, message{Kind: bytesOf, Length: m.Length}); err != nil {
		return err
	}
	return sendChunks(r.session, w, r.file, m.Offset, m.Length)
}

// open makes r.file the file that a question is about and checks the range.
func (r *reading) open(m message) error {
	if err := r.files.config.Hook("store.read"); err != nil {
		return err
	}
	if r.file == nil || r.id != m.ID || r.name != m.File.Name {
		r.close()
		r.file = nil
		file, err := r.files.config.Folder.Open(m.ID, m.File.Name)
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
