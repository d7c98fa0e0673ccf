package ssh

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pkg/sftp"
	"github.com/plx-run/plx/launcher/transport"
)

// cleanUpTimeout bounds the removal of a temporary file after a failure.
const cleanUpTimeout = 5 * time.Second

// Copy writes the size bytes of r to path, which is absolute, with the permissions of mode. It
// writes a temporary file in the same folder, checks its size, and renames it to path. So nobody
// sees half a file, and one of several copies at the same time wins. The folder must exist. r must
// end after size bytes.
//
// The error is a transport.ErrNoCopy if the host has no sftp, or allows no further session now.
// After a failure Copy removes the temporary file, unless the connection is lost. errors.Is finds
// fs.ErrPermission, fs.ErrNotExist, syscall.ENOSPC and syscall.EROFS if the host reports them.
// Copy does not flush the host's disk.
func (c *Client) Copy(ctx context.Context, r io.Reader, size int64, path string, mode fs.FileMode) error {
	u := &upload{client: c, to: path, temporary: temporaryName(path), size: size, mode: mode.Perm(), r: &exactly{r: r, left: size}}
	err := u.bySFTP(ctx)
	if err == nil || err == transport.ErrNoCopy {
		return err
	}
	if !u.r.failed.Load() || ctx.Err() != nil {
		err = c.explain(ctx, err)
	}
	var lost *transport.LostError
	if u.created.Load() && !errors.As(err, &lost) {
		u.remove()
	}
	if errors.As(err, &lost) {
		return err
	}
	return fmt.Errorf("host %s: copy to %s: %w", c.cfg.Host, path, err)
}

// upload is one call of Copy.
type upload struct {
	client        *Client
	to, temporary string // path of the file, and its path while it is being written
	size          int64  // bytes
	mode          fs.FileMode
	r             *exactly
	created       atomic.Bool // the temporary file may exist on the host
}

// remove deletes the temporary file. It ignores an error: the caller reports the failure
// of the copy.
func (u *upload) remove() {
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpTimeout)
	defer cancel()
	_ = u.client.Run(ctx, "rm -f -- "+Quote(u.temporary), nil, nil, nil)
}

// temporaryName returns a name in the folder of to. No other host, process or copy uses
// it: many hosts may share the folder.
func temporaryName(to string) string {
	folder, base := path.Split(to)
	host, _ := os.Hostname() // without it the random part still differs
	host, _, _ = strings.Cut(host, ".")
	return fmt.Sprintf("%s.%s.%s.%d.%s.tmp", folder, base[:min(len(base), 100)], host[:min(len(host), 32)], os.Getpid(), rand.Text())
}

// exactly reads a source, and fails unless it has the announced length.
type exactly struct {
	r      io.Reader
	left   int64       // bytes that r must still deliver
	failed atomic.Bool // r has failed, or has another length than announced
}

func (e *exactly) Read(p []byte) (int, error) {
	n, err := e.read(p)
	if err != nil && err != io.EOF {
		e.failed.Store(true)
	}
	return n, err
}

func (e *exactly) read(p []byte) (int, error) {
	if e.left == 0 {
		n, err := io.ReadFull(e.r, make([]byte, 1))
		if n > 0 {
			err = errors.New("the source is longer than announced")
		}
		return 0, err
	}
	n, err := e.r.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if err == io.EOF && e.left > 0 {
		return n, fmt.Errorf("the source ended %d bytes early: %w", e.left, io.ErrUnexpectedEOF)
	}
	if err == io.EOF {
		err = nil // the next call returns it
	}
	return n, err
}

// sftpStart bounds the start of the protocol: the output of a start-up file may look like
// the beginning of a long packet.
const sftpStart = 15 * time.Second

// bySFTP sends the file over a session of its own, so that the end of ctx harms no other
// call.
func (u *upload) bySFTP(ctx context.Context) error {
	c := u.client
	s, err := c.openNow(ctx, "subsystem", "sftp")
	if err != nil {
		var lost *transport.LostError
		if ctx.Err() != nil || errors.As(err, &lost) {
			return err
		}
		return transport.ErrNoCopy
	}
	defer s.end()
	remote, err := u.greet(ctx, s)
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	c.workers.start(func() { sent <- u.send(remote) })
	select {
	case err = <-sent:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-c.stop:
		err = errClientDone
	}
	s.end()
	// The channel is closed: this ends only the goroutine of the sftp client.
	c.workers.start(func() { _ = remote.Close() })
	return err
}

// greet starts the protocol, within sftpStart.
func (u *upload) greet(ctx context.Context, s *session) (*sftp.Client, error) {
	c := u.client
	var err error
	started := make(chan *sftp.Client, 1)
	c.workers.start(func() {
		var remote *sftp.Client
		remote, err = sftp.NewClientPipe(s, s, sftp.UseConcurrentWrites(true))
		started <- remote
	})
	select {
	case remote := <-started:
		if err == nil {
			return remote, nil
		}
		if lost := c.lost(); lost != nil {
			return nil, lost
		}
		return nil, transport.ErrNoCopy
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(min(sftpStart, c.cfg.DeadAfter)):
		return nil, transport.ErrNoCopy
	}
}

// send writes the temporary file, checks its size, and renames it.
func (u *upload) send(remote *sftp.Client) error {
	u.created.Store(true)
	f, err := remote.OpenFile(u.temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return u.reason(remote, fmt.Errorf("create %s: %w", u.temporary, err))
	}
	// Before the content is written: it may be secret.
	err = f.Chmod(u.mode)
	if err == nil {
		_, err = f.ReadFromWithConcurrency(u.r, 64)
	}
	var info fs.FileInfo
	if err == nil {
		info, err = f.Stat()
	}
	if err == nil && info.Size() != u.size {
		err = fmt.Errorf("%d bytes arrived of %d", info.Size(), u.size)
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return u.reason(remote, fmt.Errorf("write: %w", err))
	}
	if err := remote.PosixRename(u.temporary, u.to); err != nil {
		return u.reason(remote, fmt.Errorf("rename: %w", err))
	}
	u.created.Store(false)
	return nil
}

// reason adds the cause to a status "failure": the protocol has no status for a full or a
// read-only file system.
func (u *upload) reason(remote *sftp.Client, err error) error {
	var status *sftp.StatusError
	if !errors.As(err, &status) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if cause := causeIn(err.Error()); cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	folder := path.Dir(u.to)
	disk, statErr := remote.StatVFS(folder)
	if statErr != nil {
		return err // the server lacks the extension
	}
	const readOnly = 1
	switch {
	case disk.Flag&readOnly != 0:
		return fmt.Errorf("%w: %w", err, syscall.EROFS)
	case disk.Bavail*disk.Frsize < uint64(min(u.size, 1<<20)), disk.Files > 0 && disk.Favail == 0:
		return fmt.Errorf("%w: %w", err, syscall.ENOSPC)
	}
	return err
}

// causeIn finds the system's error in the text of a message.
func causeIn(text string) error {
	text = strings.ToLower(text)
	for words, cause := range map[string]error{
		"no space left": syscall.ENOSPC, "read-only file system": syscall.EROFS, "quota exceeded": syscall.EDQUOT,
		"permission denied": fs.ErrPermission, "no such file": fs.ErrNotExist, "directory nonexistent": fs.ErrNotExist,
	} {
		if strings.Contains(text, words) {
			return cause
		}
	}
	return nil
}
