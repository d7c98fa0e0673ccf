package launcher

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/launcher/artifacts"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
)

// workdir is the folder of --workdir as it was read.
type workdir struct {
	named   string       // as the user named it
	folder  *tree.Folder // nil: there is no --workdir
	program string       // path of the program on the hosts, if it is in the folder; empty: it is not
	notes   []string     // for the user
}

// readWorkdir reads the folder of --workdir, and refuses arguments that name files
// which the hosts do not get.
func readWorkdir(ctx context.Context, cfg Config, printer *console.Printer) (w workdir, err error) {
	if cfg.Workdir != "" {
		w.named = cfg.Workdir
		if err := notHome(cfg.Workdir); err != nil {
			return w, err
		}
		if err := refuseMissing(cfg); err != nil {
			return w, err
		}
		count := new(tree.Count)
		defer watchReading(printer, "--workdir "+cfg.Workdir, count)()
		if w.folder, err = tree.Scan(ctx, cfg.Workdir, tree.Options{Cache: hashCache(), Count: count}); err != nil {
			return w, causeOr(ctx, exit.Mistake(fmt.Errorf("--workdir %s on this machine: %w", cfg.Workdir, err),
				"--workdir names a folder of this machine, such as --workdir .; a .plxignore in it names files to leave out"))
		}
		w.program = w.find(cfg.Program)
	}
	w.notes, err = checkLocal(cfg, w)
	return w, err
}

// notHome refuses the user's home folder, and a folder above it, unless the user has said
// by a .plxignore what of it is to stay here: it has keys and passwords.
func notHome(folder string) error {
	home, err := filepath.EvalSymlinks(os.Getenv("HOME"))
	if err != nil {
		return nil // without a home nothing is known of it
	}
	abs, err := filepath.Abs(folder)
	if err != nil {
		return nil // Scan reports what is wrong with the folder; so below
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil
	}
	inside, err := filepath.Rel(abs, home)
	if err != nil || !filepath.IsLocal(inside) || isFile(filepath.Join(abs, ".plxignore")) {
		return nil
	}
	return exit.Mistake(fmt.Errorf("--workdir %s: your home folder %s is in it, with your keys and passwords", folder, home),
		"put the job's files into a folder of their own; or write a .plxignore beside them that excludes the rest")
}

// watchReading shows how far the reading of a folder is.
func watchReading(printer *console.Printer, what string, count *tree.Count) (done func()) {
	return printer.Watch(func() string {
		found, read, bytes := count.Now()
		return fmt.Sprintf("reading %s: %d of %s, %s", what, read, console.Count(int(found), "file"), console.Size(bytes))
	})
}

// causeOr returns the cause of ctx's end, else err.
func causeOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// hashCache returns the folder of this machine that keeps the hashes of files, or "".
func hashCache() string {
	home := os.Getenv("HOME")
	if home == "" {
		return ""
	}
	return filepath.Join(home, ".plx", "hashes")
}

// find returns the path, in the working directory, of a local program, or "" if the
// folder does not have it.
func (w workdir) find(program string) string {
	if kind, err := artifacts.KindOf(program); err != nil || kind != artifacts.Local {
		return ""
	}
	if p, ok := w.inside(program); ok {
		if e, found := w.folder.Find(p); found && e.Kind == tree.File {
			return "./" + p
		}
	}
	return ""
}

// inside returns the path of a file of this machine relative to the folder.
func (w workdir) inside(file string) (string, bool) {
	abs, err := filepath.Abs(file)
	if err != nil {
		return "", false
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", false
	}
	p, err := filepath.Rel(w.folder.Root(), filepath.Join(parent, filepath.Base(abs)))
	return filepath.ToSlash(p), err == nil && filepath.IsLocal(p)
}

// id returns the content hash of the folder's manifest, or "".
func (w workdir) id() string {
	if w.folder == nil {
		return ""
	}
	return w.folder.ID().String()
}

// source names the folder as Spec.Source does, or is "".
func (w workdir) source() string {
	if w.folder == nil {
		return ""
	}
	machine, _ := os.Hostname() // without it equal paths of several machines share a spare folder
	sum := sha256.Sum256([]byte(machine + "\x00" + w.folder.Root()))
	return hex.EncodeToString(sum[:8])
}

// lines tells what is sent.
func (w workdir) lines() []string {
	if w.folder == nil {
		return nil
	}
	n, size := w.folder.Files()
	return []string{fmt.Sprintf("send: %s (%s, %s) as the tasks' working directory, what a host lacks of it", w.named, console.Count(n, "file"), console.Size(size))}
}

// sendWorkdir brings the folder's contents to all hosts that have tasks.
func (l *launch) sendWorkdir(ctx context.Context) error {
	if l.workdir.folder == nil {
		return nil
	}
	how := sending(l.cfg, l.printer)
	how.Bar = l.printer.NewTransfer("sending " + l.workdir.named)
	err := hosts.SendWorkdir(ctx, l.agents, l.workdir.folder, l.workdir.source(), l.artifacts.Archives(), how)
	how.Bar.Sent(err)
	if err != nil {
		return causeOr(ctx, fmt.Errorf("--workdir %s: %w", l.workdir.named, err))
	}
	return nil
}

// sendAgain brings the folder's contents to a host that may have lost them.
func (w workdir) sendAgain(ctx context.Context, a *hosts.AgentHost, archives []string) error {
	if w.folder == nil {
		return nil
	}
	return hosts.SendWorkdir(ctx, []*hosts.AgentHost{a}, w.folder, w.source(), archives, hosts.Sending{})
}
