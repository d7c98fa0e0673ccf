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

// Workdir is the content of the folder of --workdir, with the files of --copy
// added. Without --workdir, it has only the files of --copy, and each task
// gets a copy of them in its own folder.
type Workdir struct {
	named  string       // value of --workdir; "" if the option is not used
	copies []string     // values of the option --copy
	taken  bool         // true if the files were copied from a running job
	Folder *tree.Folder // the files to send; nil if neither --workdir nor --copy is used
}

// ReadWorkdir reads the folder of --workdir, and prints notes about files in
// the folder that could surprise the user. It does nothing if dir is "".
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

// ReadCopies reads the files and folders of --copy. If there is a working
// directory, ReadCopies adds them to it.
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

// notEmpty returns an error if ignore patterns exclude everything in the
// folder of --workdir.
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
	return exit.Mistake(fmt.Errorf("--workdir %s: nothing in it would be sent: %s excludes it", w.named, why), "%s", cure)
}

// remarks returns notes about files in the folder of --workdir that could
// surprise the user.
func (w Workdir) remarks() (lines []string) {
	if w.named != "" {
		for _, note := range w.Folder.Notes() {
			lines = append(lines, fmt.Sprintf("note: --workdir %s: %s", w.named, note))
		}
	}
	return lines
}

// largeFolder is the size, in bytes, above which plx prints a note. The folder
// may then be larger than the user expects.
const largeFolder = 1 << 30

// size returns a note with the largest files if the folder is larger than
// largeFolder.
func (w Workdir) size() []string {
	if w.Folder == nil {
		return nil
	}
	_, size := w.Folder.Files()
	if size <= largeFolder {
		return nil
	}
	const most = 3
	files := slices.DeleteFunc(slices.Clone(w.Folder.Entries), func(e tree.Entry) bool { return e.Kind != tree.File })
	slices.SortStableFunc(files, func(a, b tree.Entry) int { return cmp.Compare(b.Size, a.Size) })
	var largest []string
	for _, e := range files[:min(most, len(files))] {
		largest = append(largest, fmt.Sprintf("%s (%s)", e.Path, console.Size(e.Size)))
	}
	return []string{fmt.Sprintf("note: --workdir %s has %s, and hosts are sent what they do not have; largest: %s; lines in .plxignore exclude files",
		w.named, console.Size(size), strings.Join(largest, ", "))}
}

// notFetched returns a note about files that are only pointers of git-lfs,
// because git-lfs has not fetched their content. flag is the option (--workdir
// or --copy) that sends the files.
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

// notHome returns an error if the folder of --workdir contains the user's home
// folder, because that has SSH keys and passwords. It accepts such a folder if
// the folder contains a .plxignore, by which the user excludes files.
func notHome(folder string) error {
	home, real := realFolder(os.Getenv("HOME")), realFolder(folder)
	if home == "" || real == "" {
		return nil // HOME is not set or does not exist, so there is nothing to compare with
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

// watchReading shows the progress of reading a folder until the caller calls
// done.
func watchReading(printer *console.Printer, what string, count *tree.Count) (done func()) {
	return printer.Watch(func() string {
		found, read, bytes := count.Now()
		return fmt.Sprintf("reading %s: %d of %s, %s", what, read, plural.Count(int(found), "file"), console.Size(bytes))
	})
}

// hashCache returns the local folder in which plx caches the checksums of
// files; "" if HOME is not set.
func hashCache() string {
	home := os.Getenv("HOME")
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".plx", "hashes")
}

// ID returns the checksum of the working directory's list of files (its
// manifest). It returns "" without --workdir.
func (w Workdir) ID() string {
	if w.named == "" {
		return ""
	}
	return w.Folder.ID().String()
}

// Copied returns the checksum of the list of files that --copy puts into each
// task's folder. It returns "" without --copy. It also returns "" with
// --workdir, because the files are then part of the working directory.
func (w Workdir) Copied() string {
	if w.named != "" || w.Folder == nil {
		return ""
	}
	return w.Folder.ID().String()
}

// Lines returns lines for the user which say what files plx sends. on is the
// number of hosts.
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

// ToHosts formats the number of bytes that plx transfers to send size bytes to
// each of several hosts. on is the number of hosts.
func ToHosts(size int64, on int) string {
	return fmt.Sprintf("%s to %s", console.Size(int64(on)*size), plural.Count(on, "host"))
}

// what returns the name of the sent files in messages, and the option that
// selects them.
func (w Workdir) what() (what, flag string) {
	if w.taken {
		return "the job's files", "the job's files"
	}
	if w.named == "" {
		return console.Names(w.copies, 0), "--copy"
	}
	return w.named, "--workdir " + w.named
}

// sendFiles sends the files of --workdir and --copy to the hosts. With
// --workdir, the hosts create the job's working directory from the files.
func (r *Recipe) sendFiles(ctx context.Context, on []*Target) error {
	w := r.Files
	if w.Folder == nil {
		return nil
	}
	what, flag := w.what()
	send := func(f *tree.Folder) error { return r.sendFolder(ctx, on, f, w.named != "", r.options(what, what)) }
	var err error
	if r.Running {
		err = send(w.Folder)
	} else {
		err = w.sendUnchanged(ctx, send, func(remarks []string) {
			if w.named != "" {
				discard(ctx, on) // the files have changed: a host may have created its working directory from their old content
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

// rereads limits how often plx reads files again that change while it sends
// them. lost limits how many files plx leaves out because they keep changing.
const rereads, lost = 3, 100

// sendUnchanged calls send with the folder. If files have changed or vanished
// since plx read them, it reads them again and repeats send. It passes new
// notes for the user to the function again. After rereads attempts, it leaves
// out files that keep changing. It never leaves out files of --copy.
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
		if w.Folder, err = w.Folder.Rescan(ctx, without); err != nil {
			return err
		}
		again(w.remarks()[known:])
	}
}
