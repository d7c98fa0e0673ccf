//go:build linux

// Package outputs finds the files that a job has made on a host: the files
// that match "plx launch --output" patterns, other new files in the job's own
// folders, and the job's logs.
//
//	err := outputs.List(folder, wanted, func(o protocol.HostOutput) error { ... })
//	file, err := outputs.Open(folder, wanted, "worker-0", "model.pt")
//	named, made, err := outputs.Unfetched(folder)
//
// The package searches the folders in which the tasks ran: one folder per
// task, or one for all tasks of the host. [jobfolder.Folder] recorded these
// folders when it started the tasks. A file that --workdir copied to the host
// is an output only if the job has changed it. In each folder, top-level
// entries whose names begin with a dot are skipped. A symbolic link to a file
// counts as a file if a pattern matches the link and the file is in the same
// folder. Links to folders are not followed.
//
// A name that contains unprintable characters is escaped, see
// [protocol.EscapeName].
//
// A file that matches no pattern counts as made by the job if it has changed
// since the first task began to run in the folder. Files that --setup or
// --copy wrote before that time do not count. Compiled Python files
// (__pycache__), links and special files do not count either.
//
// The package changes only one file: the record of the files that the user has
// fetched.
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

// place is a folder that is searched for outputs.
type place struct {
	name    string // name of the folder in protocol.HostOutput, such as "worker-0"
	dir     string
	own     bool              // true if the folder is part of the job's own folder, which "plx prune" removes
	outputs []protocol.Output // patterns that select files of this folder
	// sent returns the files that --workdir copied into this folder, by name;
	// nil means that --workdir copied none. The list can be long, so sent is
	// called only if the content of a file must be compared.
	sent  func() (map[string]tree.Entry, error)
	made  bool  // true to find files that match no pattern, too
	begun int64 // when the first task began to run in dir, in nanoseconds of the file system's clock; 0 if unknown
}

// places returns the folders in which the job has run on this host. Each has
// the patterns that select its outputs.
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
	dirs, err := f.TaskFolders()
	if err != nil {
		return nil, err
	}
	begun, err := f.FirstStarts()
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

// matches reports whether a pattern of the folder matches the relative path
// name, or a folder above that path.
func (p place) matches(name string) bool {
	return slices.ContainsFunc(p.outputs, func(o protocol.Output) bool { return o.Matches(name) })
}

// mayHold reports whether the subfolder dir can contain outputs, so that walk
// must search it.
func (p place) mayHold(dir string) bool {
	return p.made && path.Base(dir) != compiled || slices.ContainsFunc(p.outputs, func(o protocol.Output) bool {
		return leadsTo(strings.Split(o.Pattern, "/"), strings.Split(dir, "/"))
	})
}

// leadsTo reports whether the pattern can match dir, a folder above dir, or a
// path below dir. pattern and dir are paths, split at "/".
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

// compiled is the name of the folders in which Python caches compiled modules.
const compiled = "__pycache__"

// walk calls visit for each output in the folder. If a file cannot be fetched,
// its field Damage says why.
func (p place) walk(visit func(*os.Root, protocol.HostOutput) error) error {
	root, err := os.OpenRoot(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the task's own folder was removed, or does not exist yet
	}
	if err != nil {
		return fmt.Errorf("open the folder of outputs: %w", err)
	}
	defer root.Close() // the folder was only read
	return fs.WalkDir(anyName{root}, ".", func(name string, e fs.DirEntry, err error) error {
		switch {
		case name == ".":
			return err
		case name[0] == '.' && e.IsDir(), e.IsDir() && err == nil && !p.mayHold(name):
			return fs.SkipDir
		case err != nil: // the folder "name" cannot be read
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

// anyName is like [os.Root.FS], but also opens files whose names are not valid
// UTF-8.
type anyName struct{ root *os.Root }

func (a anyName) Open(name string) (fs.File, error)     { return a.root.Open(name) }
func (a anyName) Stat(name string) (fs.FileInfo, error) { return a.root.Stat(name) }

// isMade reports whether the job may have made or changed a file that matches
// no pattern. A file from --workdir can be reported although its content did
// not change; unchanged filters out such files.
func (p place) isMade(name string, e fs.DirEntry) bool {
	return p.made && path.Base(path.Dir(name)) != compiled && e.Type().IsRegular() && p.isNew(e)
}

// isNew reports whether a file may have changed since the first task began to
// run in the folder.
func (p place) isNew(e fs.DirEntry) bool {
	info, err := e.Info()
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) // if the file was removed during the walk, it is no output; other errors are reported later
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	return !ok || s.Ctim.Nano() >= p.begun
}

// unchanged reports whether a file still has the content that --workdir copied
// to the host, so that it is no output.
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

// named returns a HostOutput in which only the place and the escaped name are
// set. A name of more than protocol.MaxOutputName bytes is cut off.
func (p place) named(name string) protocol.HostOutput {
	plain := protocol.EscapeName(name)
	return protocol.HostOutput{Place: p.name, Name: strings.ToValidUTF8(plain[:min(len(plain), protocol.MaxOutputName)], "")}
}

// look returns the size and modification time of a file, or why it cannot be
// fetched. It does not compute the checksum.
func (p place) look(root *os.Root, name string) protocol.HostOutput {
	o := p.named(name)
	info, err := root.Stat(name) // os.Root follows no link that leads out of the folder
	switch {
	case err != nil && isLink(root, name):
		o.Damage = "it is a symbolic link out of the folder, or to a file that does not exist"
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

// List calls visit for each wanted output of the job, with its checksum. If
// want has no patterns, List also visits the job's logs.
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

// listLogs calls visit for each log file in a folder. It skips empty logs:
// those of tasks that printed nothing.
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

// read returns the size of a file and its SHA-256 in hexadecimal, and closes
// the file. Its parameters are the two results of opening the file.
func read[F io.ReadCloser](file F, err error) (size int64, sum string, failed error) {
	if err != nil {
		return 0, "", err
	}
	defer file.Close() // the file was only read
	return digest.Of(file)
}

// Open opens an output that want selects, or a log of the job. It follows no
// symbolic link that leads out of the output's folder.
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
		root.Close() // the folder was only read
		if err == nil {
			return file, nil
		}
	}
	return nil, err
}

// OpenIn opens the regular file name in the folder root. It follows no link
// that leads out of root, and returns an error for devices and pipes.
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
