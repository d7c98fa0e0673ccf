package ssh

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/pkg/sftp"
)

// sftpStart bounds the start of the protocol: the output of a start-up file may look like
// the beginning of a long packet.
const sftpStart = 15 * time.Second

// errNoSFTP says that sftp does not work on the host. Nothing was written.
var errNoSFTP = errors.New("no sftp on the host")

// bySFTP sends the file over a session of its own, so that the end of ctx harms no other
// call.
func (u *upload) bySFTP(ctx context.Context) error {
	c := u.client
	s, err := c.openSession(ctx, "subsystem", "sftp")
	if err != nil {
		var lost *LostError
		if ctx.Err() != nil || errors.As(err, &lost) {
			return err
		}
		return errNoSFTP
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
	type result struct {
		remote *sftp.Client
		err    error
	}
	results := make(chan result, 1)
	c.workers.start(func() {
		remote, err := sftp.NewClientPipe(s, s, sftp.UseConcurrentWrites(true))
		results <- result{remote, err}
	})
	select {
	case r := <-results:
		if r.err == nil {
			return r.remote, nil
		}
		if lost := c.lost(); lost != nil {
			return nil, lost
		}
		return nil, errNoSFTP
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(min(sftpStart, c.cfg.DeadAfter)):
		return nil, errNoSFTP
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
	if err == nil {
		err = checkSize(f, u.size)
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

func checkSize(f *sftp.File, size int64) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != size {
		return fmt.Errorf("%d bytes arrived of %d", info.Size(), size)
	}
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
