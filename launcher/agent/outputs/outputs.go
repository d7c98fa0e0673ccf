//go:build linux

// Package outputs finds the files that a job has made on a host: those that the patterns of
// "plx launch --output" name, others in the job's own folders, and its logs.
//
//	err := outputs.List(folder, wanted, func(o protocol.HostOutput) error { ... })
//	file, err := outputs.Open(folder, wanted, "worker-0", "model.pt")
//	named, made, err := outputs.Unfetched(folder)
//
// A file is looked for where the tasks ran: each in its own folder, or all of a host in
// one. What --workdir has sent is no output unless the job has changed it.
// [jobfolder.Folder] has noted that place when it started the task. What begins with
// a dot at the top of that folder is left out. A link to a file counts as the file if
// that is in the folder too and a pattern names the link. Links to folders are not followed.
//
// A name that is not plain text gets one that is: see [protocol.EscapeName].
//
// A file that no pattern names was made by the job if it has changed since the first task
// began to run in the folder: --setup and --copy come before. Compiled Python
// (__pycache__), links and what is no file do not count.
//
// The package changes no file but the note of what was fetched.
package outputs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/internal/digest"
	"github.com/plx-run/plx/launcher/agent/jobfolder"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/logs"
)

// place is a folder with outputs.
type place struct {
	name    string // as in protocol.HostOutput
	dir     string
	own     bool              // the folder is a part of the job's, and removed with it
	outputs []protocol.Output // name files
	// sent returns the files that --workdir has sent, by name; nil: none. Only what may have
	// changed asks for them: of most jobs that is nothing, and the list can be long.
	sent  func() (map[string]tree.Entry, error)
	made  bool  // files that outputs do not name are looked for too
	begun int64 // when the first task began to run here, by the file system's clock; 0: not known
}

// places returns the folders in which the job has run on this host, and what is wanted of
// each.
func places(f jobfolder.Folder, want protocol.Wanted) ([]place, error) {
	s, err := f.ReadState()
	if err != nil && !errors.Is(err, jobfolder.ErrDamaged) {
		return nil, err
	}
	if want.Patterns != nil {
		s.Outputs = nil
	}
	for _, p := range want.Patterns {
		s.Outputs = append(s.Outputs, protocol.Output{Pattern: p})
	}
	dirs, err := f.Places()
	if err != nil {
		return nil, err
	}
	begun, err := f.Begun()
	if err != nil {
		return nil, err
	}
	var all []place
	var relative []protocol.Output
	for _, o := range s.Outputs {
		if o.Dir == "" {
			relative = append(relative, o)
			continue
		}
		all = append(all, place{name: protocol.TelemetryPlace, dir: o.Dir, outputs: []protocol.Output{o}})
	}
	for _, dir := range dirs {
		name := protocol.SharedPlace
		if filepath.Dir(dir) == f.Tasks() {
			name = filepath.Base(dir)
		}
		p := place{name: name, dir: dir, own: strings.HasPrefix(dir, string(f)+string(filepath.Separator)), outputs: relative, begun: begun[dir]}
		p.made = p.own && want.Made
		if p.own && dir == f.Work() {
			p.sent = sync.OnceValues(func() (map[string]tree.Entry, error) { return f.Sent(s.Workdir) })
		}
		all = append(all, p)
	}
	return all, nil
}

// matches reports whether a pattern names a path below the folder, or a folder that it
// is in.
func (p place) matches(name string) bool {
	return slices.ContainsFunc(p.outputs, func(o protocol.Output) bool { return o.Matches(name) })
}

// mayHold reports whether a folder can have files that are wanted.
func (p place) mayHold(dir string) bool {
	return p.made && path.Base(dir) != compiled || slices.ContainsFunc(p.outputs, func(o protocol.Output) bool {
		return leadsTo(strings.Split(o.Pattern, "/"), strings.Split(dir, "/"))
	})
}

// leadsTo reports whether paths below dir can match the pattern, or a folder that they
// are in.
func leadsTo(pattern, dir []string) bool {
	for i, element := range dir {
		if i >= len(pattern) || strings.ContainsAny(pattern[i], "{") || pattern[i] == "**" {
			return true
		}
		if !doublestar.MatchUnvalidated(pattern[i], element) {
			return false
		}
	}
	return true
}

// compiled is the name of folders with what Python has compiled.
const compiled = "__pycache__"

// walk visits the files that are wanted. A file that cannot be fetched has a Damage.
func (p place) walk(visit func(*os.Root, protocol.HostOutput) error) error {
	root, err := os.OpenRoot(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the tasks' own folder was removed, or is yet to be made
	}
	if err != nil {
		return fmt.Errorf("open the folder of outputs: %w", err)
	}
	defer root.Close() // only read
	return fs.WalkDir(anyName{root}, ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case name == ".":
			return err
		case name[0] == '.' && e.IsDir(), e.IsDir() && err == nil && !p.mayHold(name):
			return fs.SkipDir
		case err != nil: // a folder that cannot be read
			return visit(root, p.named(name).Damaged(err))
		case name[0] == '.' || e.IsDir() || !p.matches(name) && !p.isMade(name, e):
			return nil
		}
		o := p.look(root, name)
		if same, err := p.unchanged(root, o, e); same || err != nil {
			return err
		}
		return visit(root, o)
	})
}

// anyName is the folder's files, as [os.Root.FS], also those with names that are no UTF-8.
type anyName struct{ root *os.Root }

func (a anyName) Open(name string) (fs.File, error)     { return a.root.Open(name) }
func (a anyName) Stat(name string) (fs.FileInfo, error) { return a.root.Stat(name) }

// isMade reports whether the job has made or changed a file that no pattern names. What was
// sent may be the same all the same: see unchanged.
func (p place) isMade(name string, e fs.DirEntry) bool {
	return p.made && path.Base(path.Dir(name)) != compiled && e.Type().IsRegular() && p.isNew(e)
}

// isNew reports whether a file may have changed since the job began.
func (p place) isNew(e fs.DirEntry) bool {
	info, err := e.Info()
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) // else it was removed meanwhile
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || s.Ctim.Nano() >= p.begun
}

// unchanged reports whether a file is as --workdir has sent it, so that the job has not
// made it.
func (p place) unchanged(root *os.Root, o protocol.HostOutput, file fs.DirEntry) (bool, error) {
	if p.sent == nil || o.Damage != "" {
		return false, nil
	}
	sent, err := p.sent()
	e, isSent := sent[o.Path()]
	if err != nil || !isSent || o.Size != e.Size {
		return false, err
	}
	if file.Type().IsRegular() && !p.isNew(file) {
		return true, nil
	}
	_, sum, err := read(root.Open(o.Path()))
	return err == nil && sum == e.Sum.String(), nil
}

// named returns an output with nothing but its name. A name that is too long is cut off.
func (p place) named(name string) protocol.HostOutput {
	plain := protocol.EscapeName(name)
	return protocol.HostOutput{Place: p.name, Name: strings.ToValidUTF8(plain[:min(len(plain), protocol.MaxOutputName)], "")}
}

// look describes a file, without its sum.
func (p place) look(root *os.Root, name string) protocol.HostOutput {
	o := p.named(name)
	info, err := root.Stat(name) // follows no link out of the folder
	switch {
	case err != nil && isLink(root, name):
		o.Damage = "it is a link that leads out of the folder, or to nothing"
	case err != nil:
		return o.Damaged(err)
	case info.IsDir():
		o.Damage = "it is not a file, but a link to a folder"
	case !info.Mode().IsRegular():
		o.Damage = "it is not a file, but a device, a pipe or a socket"
	case o.Path() != name:
		return o.Damaged(fmt.Errorf("its name is longer than %d bytes", protocol.MaxOutputName))
	default:
		o.Size, o.Modified = info.Size(), info.ModTime().UnixNano()
	}
	return o
}

func isLink(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// List visits all files that are wanted, with their sums. Without patterns these are the logs too.
func List(f jobfolder.Folder, want protocol.Wanted, visit func(protocol.HostOutput) error) error {
	if want.Patterns == nil {
		if err := listLogs(f.Logs(), visit); err != nil {
			return err
		}
	}
	all, err := places(f, want)
	n := 0
	for _, p := range all {
		if err != nil {
			break
		}
		err = p.walk(func(root *os.Root, o protocol.HostOutput) error {
			if n++; n > protocol.MaxOutputs {
				return fmt.Errorf("more than %d files: name fewer with patterns", protocol.MaxOutputs)
			}
			if o.Damage == "" {
				o = o.Read(read(root.Open(o.Path())))
			}
			return visit(o)
		})
	}
	return err
}

// listLogs visits the logs in a folder. A stream of a task that has printed nothing has none.
func listLogs(dir string, visit func(protocol.HostOutput) error) error {
	names, err := logs.Files(dir)
	for _, name := range names {
		if err != nil {
			break
		}
		o := protocol.HostOutput{Place: protocol.LogsPlace, Name: name}
		if o = o.Read(read(logs.OpenFile(dir, name))); o.Size > 0 || o.Damage != "" {
			err = visit(o)
		}
	}
	return err
}

// read returns the size of a file that was opened, and its SHA-256 in hexadecimal, and closes it.
func read[F io.ReadCloser](file F, err error) (size int64, sum string, failed error) {
	if err != nil {
		return 0, "", err
	}
	defer file.Close() // only read
	return digest.Of(file)
}

// Open opens a file that is wanted, or a log. It follows no link out of its folder.
func Open(f jobfolder.Folder, want protocol.Wanted, where, name string) (io.ReadCloser, error) {
	if where == protocol.LogsPlace {
		return logs.OpenFile(f.Logs(), name)
	}
	all, err := places(f, want)
	if err != nil {
		return nil, err
	}
	path := protocol.UnescapeName(name)
	plain := fs.ValidPath(name) && protocol.EscapeName(path) == name
	err = fmt.Errorf("%s/%s is no output of the job", where, name)
	for _, p := range all {
		if p.name != where || !plain || !p.made && !p.matches(path) {
			continue
		}
		root, opened := os.OpenRoot(p.dir)
		if opened != nil {
			err = opened
			continue
		}
		var file *os.File
		file, err = OpenIn(root, path)
		root.Close() // only read
		if err == nil {
			return file, nil
		}
	}
	return nil, err
}

// OpenIn opens a file in a folder. It follows no link out of it, and opens no device.
func OpenIn(root *os.Root, name string) (*os.File, error) {
	info, err := root.Stat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a file", name)
	}
	if err != nil {
		return nil, err
	}
	return root.Open(name)
}
