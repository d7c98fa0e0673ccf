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
	temporary := Quote(withFolder(temporaryName(path)))
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
mv -f %[1]s %[2]s`, temporary, Quote(withFolder(path)), size, mode.Perm())
	source := &exactly{r: r, left: size}
	var stderr message
	err := c.Run(ctx, script, source, nil, &stderr)
	var lost *LostError
	if err == nil || errors.As(err, &lost) {
		return err
	}
	if source.begun.Load() { // the temporary file may be there
		c.remove(temporary)
	}
	if text := strings.TrimSpace(stderr.String()); text != "" {
		err = fmt.Errorf("%w: %s", err, text)
		if cause := causeIn(text); cause != nil {
			err = fmt.Errorf("%w: %w", err, cause)
		}
	}
	return fmt.Errorf("host %s: copy to %s: %w", c.cfg.Host, path, err)
}

// remove deletes the temporary file. It ignores an error: the caller reports the failure
// of the copy.
func (c *Client) remove(temporary string) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpTimeout)
	defer cancel()
	_ = c.Run(ctx, "rm -f -- "+temporary, nil, nil, nil)
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
	r     io.Reader
	left  int64
	begun atomic.Bool // Read was called
}

func (e *exactly) Read(p []byte) (int, error) {
	e.begun.Store(true)
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
	var one [1]byte
	for range 100 {
		n, err := e.r.Read(one[:])
		if n > 0 {
			return errors.New("the source is longer than announced")
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
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
