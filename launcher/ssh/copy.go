package ssh

import (
	"bytes"
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

// Copy writes the size bytes of r to path, which is absolute or relative to the user's
// home, with the permissions of mode. It writes a temporary file in the same folder,
// checks its size, and renames it to path. So nobody sees half a file, and one of several
// copies at the same time wins. The folder must exist. r must end after size bytes.
//
// After a failure Copy removes the temporary file, unless the connection is lost.
// errors.Is finds fs.ErrPermission, fs.ErrNotExist, syscall.ENOSPC and syscall.EROFS if
// the host reports them. Copy does not flush the host's disk.
func (c *Client) Copy(ctx context.Context, r io.Reader, size int64, path string, mode fs.FileMode) error {
	u := &upload{client: c, to: path, temporary: temporaryName(path), size: size, mode: mode.Perm(), r: &exactly{r: r, left: size}}
	err := errNoSFTP
	if !c.noSFTP.Load() {
		err = u.bySFTP(ctx)
	}
	if errors.Is(err, errNoSFTP) {
		c.noSFTP.Store(true)
		err = u.byShell(ctx)
	}
	if err == nil {
		return nil
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

// byShell sends the file through commands, for a host whose sftp does not work: a
// start-up file that prints breaks it. The host cannot tell a source that failed from
// one that ended, so a command of its own renames the file after the source has ended
// as announced.
func (u *upload) byShell(ctx context.Context) error {
	u.created.Store(true)
	temporary, to := Quote(withFolder(u.temporary)), Quote(withFolder(u.to))
	// umask first: the content may be secret. The shell's noclobber makes the creation
	// exclusive. Some wc print blanks before the size.
	write := fmt.Sprintf(`LC_ALL=C; export LC_ALL
set -e
umask 077
set -C
: > %[1]s
set +C
cat > %[1]s
size=$(wc -c < %[1]s | tr -d ' ')
if [ "$size" != %[2]d ]; then echo "$size bytes arrived of %[2]d" >&2; exit 1; fi
chmod %[3]o %[1]s`, temporary, u.size, u.mode)
	rename := fmt.Sprintf(`LC_ALL=C; export LC_ALL
if [ -d %[2]s ]; then echo "is a directory" >&2; exit 1; fi
mv -f %[1]s %[2]s`, temporary, to)
	err := u.command(ctx, write, u.r)
	if err == nil {
		err = u.command(ctx, rename, nil)
	}
	if err == nil {
		u.created.Store(false)
	}
	return err
}

// command runs a command of byShell. Its error has the cause that the host printed.
func (u *upload) command(ctx context.Context, script string, stdin io.Reader) error {
	var stderr message
	err := u.client.Run(ctx, script, stdin, nil, &stderr)
	text := strings.TrimSpace(stderr.String())
	if err == nil || text == "" {
		return err
	}
	if cause := causeIn(text); cause != nil {
		return fmt.Errorf("%w: %s: %w", err, text, cause)
	}
	return fmt.Errorf("%w: %s", err, text)
}

// withFolder keeps a name that begins with "-" from being an option.
func withFolder(name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return "./" + name
}

// message keeps the first KiB that is written to it.
type message struct{ bytes.Buffer }

func (t *message) Write(p []byte) (int, error) {
	if room := 1024 - t.Len(); room > 0 {
		t.Buffer.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

// sftpStart bounds the start of the protocol: the output of a start-up file may look like
// the beginning of a long packet.
const sftpStart = 15 * time.Second

// errNoSFTP says that sftp does not work on the host. Nothing was written.
var errNoSFTP = errors.New("no sftp on the host")

// bySFTP sends the file over a session of its own, so that the end of ctx harms no other
// call.
func (u *upload) bySFTP(ctx context.Context) error {
	c := u.client
	if err := u.settle(ctx); err != nil {
		return err
	}
	s, err := c.openSession(ctx, "subsystem", "sftp")
	if err != nil {
		var lost *transport.LostError
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

// settle makes the paths absolute: a server may start sftp in another folder than commands.
func (u *upload) settle(ctx context.Context) error {
	if path.IsAbs(u.to) {
		return nil
	}
	start, err := u.client.startFolder(ctx)
	if err != nil {
		return err
	}
	u.to, u.temporary = path.Join(start, u.to), path.Join(start, u.temporary)
	return nil
}

// startFolder returns the folder in which commands start, which is the user's home.
func (c *Client) startFolder(ctx context.Context) (string, error) {
	c.homeMu.Lock()
	defer c.homeMu.Unlock()
	if c.home != "" {
		return c.home, nil
	}
	var pwd message
	if err := c.Run(ctx, "pwd", nil, &pwd, nil); err != nil {
		return "", fmt.Errorf("find the home: %w", err)
	}
	start := strings.TrimSuffix(pwd.String(), "\n")
	if !path.IsAbs(start) {
		return "", fmt.Errorf("find the home: pwd printed %q", start)
	}
	c.home = start
	return start, nil
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
