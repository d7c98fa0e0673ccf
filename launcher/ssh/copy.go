package ssh

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"time"
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
	var lost *LostError
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
	to, temporary string
	size          int64
	mode          fs.FileMode
	r             *exactly
	created       atomic.Bool // the temporary file may be there
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
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails since Go 1.24
	return fmt.Sprintf("%s.%s.%s.%d.%s.tmp", folder, shorten(base, 100), shorten(host, 32), os.Getpid(), hex.EncodeToString(random[:]))
}

// shorten cuts s to n bytes: file names have at most 255.
func shorten(s string, n int) string { return s[:min(len(s), n)] }

// exactly reads a source, and fails unless it has the announced length.
type exactly struct {
	r      io.Reader
	left   int64
	failed atomic.Bool // the source failed, or has another length
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
		return 0, e.mustEnd()
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

// mustEnd returns io.EOF at the end of the source.
func (e *exactly) mustEnd() error {
	n, err := io.ReadFull(e.r, make([]byte, 1))
	if n > 0 {
		return errors.New("the source is longer than announced")
	}
	return err
}

// byShell sends the file through a command, for a host whose sftp does not work: a
// start-up file that prints breaks it.
func (u *upload) byShell(ctx context.Context) error {
	u.created.Store(true)
	temporary, to := Quote(withFolder(u.temporary)), Quote(withFolder(u.to))
	// umask first: the content may be secret. The shell's noclobber makes the creation
	// exclusive. Some wc print blanks before the size.
	script := fmt.Sprintf(`LC_ALL=C; export LC_ALL
set -e
umask 077
set -C
: > %[1]s
set +C
cat > %[1]s
size=$(wc -c < %[1]s | tr -d ' ')
if [ "$size" != %[3]d ]; then echo "$size bytes arrived of %[3]d" >&2; exit 1; fi
chmod %[4]o %[1]s
if [ -d %[2]s ]; then echo "is a directory" >&2; exit 1; fi
mv -f %[1]s %[2]s`, temporary, to, u.size, u.mode)
	var stderr message
	err := u.client.Run(ctx, script, u.r, nil, &stderr)
	if err == nil {
		u.created.Store(false)
		return nil
	}
	if text := strings.TrimSpace(stderr.String()); text != "" {
		if cause := causeIn(text); cause != nil {
			return fmt.Errorf("%w: %s: %w", err, text, cause)
		}
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
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
