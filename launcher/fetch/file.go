package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"syscall"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/protocol"
)

// atOnce is how many files are fetched at the same time.
const atOnce = 8

// file fetches a file from one of the hosts that have it. It begins with another host
// for each turn, and tries the next host if one fails.
func (f *fetcher) file(ctx context.Context, folder string, file keptFile, turn int) error {
	name := path.Join(folder, file.Name)
	var errs []error
	for try := range file.hosts {
		s := f.from.Hosts[file.hosts[(turn+try)%len(file.hosts)]]
		there, err := store(ctx, filepath.Join(f.from.Dir, filepath.FromSlash(name)), file.CheckpointFile, func(ctx context.Context, w io.Writer, offset int64) error {
			return ask(ctx, s, protocol.FetchRequest{Checkpoints: f.from.Name, Name: name, Offset: offset, Size: file.Size}, &passing{w: w, f: f, name: name, sent: offset, size: file.Size})
		})
		if err == nil {
			f.took(name, file, there)
			return nil
		}
		if errors.As(err, new(ownFault)) || ctx.Err() != nil {
			return err
		}
		errs = append(errs, s.Named(err))
	}
	return errors.Join(errs...)
}

func (f *fetcher) took(name string, file keptFile, there bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.taken[name] {
		return // in an earlier round
	}
	f.taken[name] = true
	f.files++
	if there {
		f.there++
		return
	}
	f.bytes += file.Size
}

// passing shows on the progress bar what is written to it.
type passing struct {
	w          io.Writer
	f          *fetcher
	name       string // path of the file below Request.Dir
	sent, size int64  // bytes that were written, and the file's size
}

func (c *passing) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.sent += int64(n)
	c.f.mu.Lock()
	defer c.f.mu.Unlock()
	c.f.bar.Moved("", c.name, c.sent, c.size)
	return n, err
}

// summarise prints what was fetched.
func (f *fetcher) summarise(what, of, dir string) {
	already := ""
	if f.there > 0 {
		already = fmt.Sprintf(", %d of them there already", f.there)
	}
	f.from.Printer.Printf("fetched %s of %s into %s: %s, %s%s", what, of, dir, console.Count(f.files, "file"), console.Size(f.bytes), already)
}

// errFull says that the disk of this machine is full.
type errFull struct{ error }

func (e errFull) Unwrap() error { return e.error }

// isFull reports whether an error of this machine says that its disk is full, or the
// user's share of it.
func isFull(err error) bool {
	return errors.As(err, new(ownFault)) && (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT))
}

// full is one error for all files that the disk has no room for. missing is the size of
// what is not fetched.
func (f *fetcher) full(missing int64) error {
	err := fmt.Errorf("%s: the disk of this machine is full: %s more to fetch", f.from.Dir, console.Size(missing))
	return errFull{exit.WithHint(err, fmt.Sprintf("make room; then plx fetch %s %s fetches the rest", f.from.Hosts[0].Job, f.from.Dir))}
}

// missing is the size of the files of checkpoints that are not fetched.
func (f *fetcher) missing(all []checkpoint) (size int64) {
	for _, c := range all {
		for _, file := range c.files {
			if c.missing == "" && !f.taken[path.Join(c.folder, file.Name)] {
				size += file.Size
			}
		}
	}
	return size
}

// joined puts the errors of outputs together. Those of a full disk become one.
func (f *fetcher) joined(all []blob, errs []error) error {
	var others []error
	missing, full := int64(0), false
	for i, err := range errs {
		if err != nil {
			missing += all[i].size
		}
		if isFull(err) {
			full = true
		} else {
			others = append(others, err)
		}
	}
	if full {
		others = append(others, f.full(missing))
	}
	return errors.Join(others...)
}
