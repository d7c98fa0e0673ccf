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

// sftpStart bounds the greeting: a start-up file's output may look like the
// beginning of a long packet.
const sftpStart = 15 * time.Second

// errNoSFTP says that the subsystem does not work, before anything was written.
var errNoSFTP = errors.New("no sftp on the host")

// copySFTP sends the file over a session of its own, which ctx can end without
// harm to others.
func (c *Client) copySFTP(ctx context.Context, file *upload) error {
	s, err := c.openSession(ctx, "subsystem", "sftp")
	if err != nil {
		var lost *LostError
		if ctx.Err() != nil || errors.As(err, &lost) {
			return err
		}
		return errNoSFTP
	}
	defer s.end()
	remote, err := c.greet(ctx, s)
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	c.workers.start(func() { sent <- send(remote, file) })
	select {
	case err = <-sent:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-c.stop:
		err = errClientDone
	}
	s.end()
	// The channel is closed: this only ends the goroutine of the sftp client.
	c.workers.start(func() { _ = remote.Close() })
	return err
}

// greet starts the protocol, within sftpStart.
func (c *Client) greet(ctx context.Context, s *session) (*sftp.Client, error) {
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

// send writes, counts and renames.
func send(remote *sftp.Client, file *upload) error {
	file.created.Store(true)
	f, err := remote.OpenFile(file.temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return reason(remote, file, fmt.Errorf("create %s: %w", file.temporary, err))
	}
	// Before the content, which may be secret.
	err = f.Chmod(file.mode)
	if err == nil {
		_, err = f.ReadFromWithConcurrency(file.r, 64)
	}
	if err == nil {
		err = checkSize(f, file.size)
	}
	if closing := f.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return reason(remote, file, fmt.Errorf("write: %w", err))
	}
	if err := remote.PosixRename(file.temporary, file.to); err != nil {
		return reason(remote, file, fmt.Errorf("rename: %w", err))
	}
	file.created.Store(false)
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

// reason finds the cause of a status that says no more than "failure": the
// protocol has none for a full or read-only file system.
func reason(remote *sftp.Client, file *upload, err error) error {
	var status *sftp.StatusError
	if !errors.As(err, &status) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if cause := causeIn(err.Error()); cause != nil {
		return fmt.Errorf("%w: %w", err, cause)
	}
	folder := path.Dir(file.to)
	disk, statErr := remote.StatVFS(folder)
	if statErr != nil {
		return err // a server without the extension: there is no more to know
	}
	const readOnly = 1
	switch {
	case disk.Flag&readOnly != 0:
		return fmt.Errorf("%w: %w", err, syscall.EROFS)
	case disk.Bavail*disk.Frsize < uint64(min(file.size, 1<<20)), disk.Files > 0 && disk.Favail == 0:
		return fmt.Errorf("%w: %w", err, syscall.ENOSPC)
	}
	return err
}

// causeIn recognises the system's own words in a message.
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
