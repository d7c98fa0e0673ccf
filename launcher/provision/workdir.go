package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
)

// Workdir is the folder of --workdir as it was read, and what --copy adds to it. Without
// --workdir it is what --copy puts into the folder of each task.
type Workdir struct {
	named  string       // the folder of --workdir, as the user named it; "": there is none
	copies []string     // of --copy
	taken  bool         // it is that of a job that runs
	Folder *tree.Folder // nil: there is neither
}

// ReadWorkdir reads the folder of --workdir, if that is not empty, and prints what its user may not expect.
func ReadWorkdir(ctx context.Context, dir string, keepLinks bool, printer *console.Printer) (w Workdir, err error) {
	if dir == "" {
		return w, nil
	}
	w.named = dir
	if err := notHome(dir); err != nil {
		return w, err
	}
	count := new(tree.Count)
	defer watchReading(printer, "--workdir "+dir, count)()
	if w.Folder, err = tree.Scan(ctx, dir, tree.Options{Cache: hashCache(), Count: count, KeepLinks: keepLinks}); err != nil {
		return w, cmp.Or(context.Cause(ctx), exit.Mistake(fmt.Errorf("--workdir %s on this machine: %w", dir, err),
			"--workdir names a folder of this machine, such as --workdir .; a .plxignore in it names files to leave out"))
	}
	if err := w.notEmpty(); err != nil {
		return w, err
	}
	printer.Lines(slices.Concat(w.remarks(), w.size(), notFetched(w.Folder, "--workdir "+dir)))
	return w, nil
}

// copyHint is the hint for a file of --copy that cannot be sent.
const copyHint = "--copy names a file or a folder of this machine; --workdir DIR sends a folder without what a .plxignore in it excludes"

// ReadCopies reads the files and folders of --copy, and adds them to the working directory if
// there is one.
func (w *Workdir) ReadCopies(ctx context.Context, paths []string, printer *console.Printer) error {
	if len(paths) == 0 {
		return nil
	}
	count := new(tree.Count)
	defer watchReading(printer, console.Names(paths, 0), count)()
	copies, err := tree.Gather(ctx, paths, tree.Options{Cache: hashCache(), Count: count})
	if err == nil {
		printer.Lines(notFetched(copies, "--copy"))
	}
	if err == nil && w.Folder != nil {
		copies, err = w.Folder.With(copies)
	}
	if err != nil {
		return cmp.Or(context.Cause(ctx), exit.Mistake(fmt.Errorf("--copy: %w", err), copyHint))
	}
	w.Folder, w.copies = copies, paths
	return nil
}

// notEmpty refuses a folder from which patterns leave nothing.
func (w Workdir) notEmpty() error {
	if slices.ContainsFunc(w.Folder.Entries, func(e tree.Entry) bool { return e.Kind != tree.Directory }) {
		return nil
	}
	why := w.Folder.Excluding()
	if why == "" {
		return nil
	}
	cure := fmt.Sprintf("to send it all: echo '!*' >> %s", filepath.Join(w.named, ".plxignore"))
	if filepath.IsAbs(why) {
		cure = fmt.Sprintf("to make it a repository of its own, in which that file does not count: git init %s; %s", w.named, cure)
	}
	return exit.Mistake(fmt.Errorf("--workdir %s: nothing of it would be sent: %s excludes it", w.named, why), "%s", cure)
}

// remarks are lines on what the user may not expect.
func (w Workdir) remarks() (lines []string) {
	if w.named != "" {
		for _, note := range w.Folder.Notes() {
			lines = append(lines, fmt.Sprintf("note: --workdir %s: %s", w.named, note))
		}
	}
	return lines
}

// muchSize is from how many bytes on a folder is perhaps larger than the user thinks.
const muchSize = 1 << 30

// size returns a line on a large folder.
func (w Workdir) size() []string {
	if w.Folder == nil {
		return nil
	}
	_, size := w.Folder.Files()
	if size <= muchSize {
		return nil
	}
	const most = 3
	files := slices.DeleteFunc(slices.Clone(w.Folder.Entries), func(e tree.Entry) bool { return e.Kind != tree.File })
	slices.SortStableFunc(files, func(a, b tree.Entry) int { return cmp.Compare(b.Size, a.Size) })
	var largest []string
	for _, e := range files[:min(most, len(files))] {
		largest = append(largest, fmt.Sprintf("%s (%s)", e.Path, console.Size(e.Size)))
	}
	return []string{fmt.Sprintf("note: --workdir %s has %s, and hosts get what they lack of it; largest: %s; lines in .plxignore leave files here",
		w.named, console.Size(size), strings.Join(largest, ", "))}
}

// notFetched returns a line on files in what a flag sends that git-lfs has not fetched.
func notFetched(folder *tree.Folder, flag string) []string {
	pointers := folder.Pointers()
	if len(pointers) == 0 {
		return nil
	}
	what := fmt.Sprintf("%q is a pointer of git-lfs", pointers[0])
	if more := len(pointers) - 1; more > 0 {
		what = fmt.Sprintf("%q and %s more are pointers of git-lfs", pointers[0], plural.Count(more, "file"))
	}
	return []string{fmt.Sprintf("note: %s: %s, without the content: git lfs pull fetches it", flag, what)}
}

// notHome refuses the user's home folder, and a folder above it, unless the user has said
// by a .plxignore what of it is to stay here: it has keys and passwords.
func notHome(folder string) error {
	home, real := realFolder(os.Getenv("HOME")), realFolder(folder)
	if home == "" || real == "" {
		return nil // without a home nothing is known of it
	}
	inside, err := filepath.Rel(real, home)
	if err != nil || !filepath.IsLocal(inside) {
		return nil
	}
	if _, err := os.Stat(filepath.Join(real, ".plxignore")); err == nil {
		return nil
	}
	return exit.Mistake(fmt.Errorf("--workdir %s: your home folder %s is in it, with your keys and passwords", folder, home),
		"put the job's files into a folder of their own; or write a .plxignore beside them that excludes the rest")
}

// watchReading shows how far the reading of a folder is.
func watchReading(printer *console.Printer, what string, count *tree.Count) (done func()) {
	return printer.Watch(func() string {
		found, read, bytes := count.Now()
		return fmt.Sprintf("reading %s: %d of %s, %s", what, read, plural.Count(int(found), "file"), console.Size(bytes))
	})
}

// hashCache returns the folder of this machine that keeps the hashes of files, or "".
func hashCache() string {
	home := os.Getenv("HOME")
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".plx", "hashes")
}

// ID returns the content hash of the manifest of the working directory, or "".
func (w Workdir) ID() string {
	if w.named == "" {
		return ""
	}
	return w.Folder.ID().String()
}

// Copied returns the content hash of the manifest of what --copy puts into the folder of each
// task, or "": there is no --copy, or a working directory.
func (w Workdir) Copied() string {
	if w.named != "" || w.Folder == nil {
		return ""
	}
	return w.Folder.ID().String()
}

// Lines tells what is sent.
func (w Workdir) Lines(on int) (lines []string) {
	if w.named != "" {
		n, size := w.Folder.Files()
		lines = append(lines, fmt.Sprintf("send: %s as the tasks' working directory: %s, at most %s", w.named, plural.Count(n, "file"), ToHosts(size, on)))
	}
	for _, file := range w.copies {
		lines = append(lines, "send: "+file+" into each task's folder")
	}
	return lines
}

// ToHosts writes how many bytes travel if all hosts lack something of a size.
func ToHosts(size int64, on int) string {
	return fmt.Sprintf("%s to %s", console.Size(int64(on)*size), plural.Count(on, "host"))
}

// what says what is sent, as the user named it.
func (w Workdir) what() (what, flag string) {
	if w.taken {
		return "the job's files", "the job's files"
	}
	if w.named == "" {
		return console.Names(w.copies, 0), "--copy"
	}
	return w.named, "--workdir " + w.named
}

// sendFiles brings the files to hosts, and makes the working directory there, if there is one.
func (r *Recipe) sendFiles(ctx context.Context, on []*Target) error {
	w := r.Files
	if w.Folder == nil {
		return nil
	}
	what, flag := w.what()
	send := func(f *tree.Folder) error { return r.sendFolder(ctx, on, f, w.named != "", r.options(what, what)) }
	var err error
	if r.Again {
		err = send(w.Folder)
	} else {
		err = w.sendUnchanged(ctx, send, func(remarks []string) {
			if w.named != "" {
				discard(ctx, on) // a host may have made it of what the files were
			}
			r.Printer.Lines(remarks)
		})
	}
	r.Spec.Workdir = w.ID()
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}

// rereads is how often files that have changed are read again, and lost how many more are
// then left out.
const rereads, lost = 3, 100

// sendUnchanged has send send the folder. Files may have changed or vanished since it was
// read: then it reads them again, and at last leaves those out that always change, but for
// those of --copy. Before it sends again it tells again of these.
func (w *Workdir) sendUnchanged(ctx context.Context, send func(*tree.Folder) error, again func(remarks []string)) error {
	for i := 0; ; i++ {
		err := send(w.Folder)
		var changed *tree.ChangedError
		if !errors.As(err, &changed) || ctx.Err() != nil || i == rereads+lost {
			return err
		}
		without := ""
		if i >= rereads {
			without = changed.Path
		}
		if w.Folder.Gathered(without) {
			return err
		}
		known := len(w.remarks())
		if w.Folder, err = w.Folder.Again(ctx, without); err != nil {
			return err
		}
		again(w.remarks()[known:])
	}
}
