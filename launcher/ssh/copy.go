package ssh

import (
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

// Copy writes the size bytes of r to path on the host, absolute or relative to
// the user's home, with the permissions of mode. The bytes go to a temporary
// name in the same folder, are counted there, and are renamed over path: nobody
// sees half a file, and of copies at the same time one wins whole. The folder
// must exist. r must end after size bytes.
//
// On failure the temporary file is removed, unless the connection is lost.
// errors.Is tells fs.ErrPermission, fs.ErrNotExist, syscall.ENOSPC and
// syscall.EROFS where the host says so. Nothing is flushed to the host's disk.
func (c *Client) Copy(ctx context.Context, r io.Reader, size int64, path string, mode fs.FileMode) error {
	file := upload{to: path, temporary: temporaryName(path), size: size, mode: mode.Perm(), r: &exactly{r: r, left: size}}
	err := errNoSFTP
	if !c.noSFTP.Load() {
		err = c.copySFTP(ctx, &file)
	}
	if errors.Is(err, errNoSFTP) {
		c.noSFTP.Store(true)
		err = c.copyShell(ctx, &file)
	}
	if err == nil {
		return nil
	}
	if !file.r.failed.Load() || ctx.Err() != nil {
		err = c.explain(ctx, err)
	}
	var lost *LostError
	if file.created.Load() && !errors.As(err, &lost) {
		c.remove(file.temporary)
	}
	if errors.As(err, &lost) {
		return err
	}
	return fmt.Errorf("host %s: copy to %s: %w", c.cfg.Host, path, err)
}

// upload is one file on its way.
type upload struct {
	to, temporary string
	size          int64
	mode          fs.FileMode
	r             *exactly
	created       atomic.Bool // the temporary file may exist
}

// remove deletes a temporary file; it is only tidiness, so a failure is not
// reported beside the one that led here.
func (c *Client) remove(temporary string) {
	ctx, cancel := context.WithTimeout(context.Background(), cleanUpTimeout)
	defer cancel()
	_ = c.Run(ctx, "rm -f -- "+Quote(temporary), nil, nil, nil)
}

// temporaryName returns a name beside to that no other host, process or copy
// uses: the folder may be shared by many hosts.
func temporaryName(to string) string {
	folder, base := path.Split(to)
	host, _ := os.Hostname() // the random part tells copies apart without it
	host, _, _ = strings.Cut(host, ".")
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails since Go 1.24
	return fmt.Sprintf("%s.%s.%s.%d.%s.tmp", folder, shorten(base, 100), shorten(host, 32), os.Getpid(), hex.EncodeToString(random[:]))
}

// shorten cuts s to at most n bytes, so that the name stays below 255.
func shorten(s string, n int) string { return s[:min(len(s), n)] }

// exactly reads a source that must have a certain length.
type exactly struct {
	r      io.Reader
	left   int64
	failed atomic.Bool // something was wrong with the source
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
	var one [1]byte
	for range 100 {
		n, err := e.r.Read(one[:])
		if n > 0 {
			return errors.New("the source is longer than was said")
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}
