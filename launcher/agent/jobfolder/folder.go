//go:build linux

// Package jobfolder is what an agent keeps of a job on its host:
//
//	~/.plx/jobs/JOB/HOST/state.json   what the agent knows; it outlives the agent
//	                     secret       the job's secret in hex, until the agent ends
//	                     agent.log    what watchdog and supervisor report
//	                     blobs        content hashes that the job uses, one per line
//	                     manifests    content hashes of the folders that the job uses, one per line
//	                     envs         virtual environments that the job uses, one per line
//	                     work/        the working directory that the tasks share, with --workdir
//	                     setup.json   what --setup has changed for them, until the agent ends
//	                     logs/        the output of the tasks
//	                     tasks/       their working folders
//	                     metrics/     what they have reported of their training, in all generations
//	                     errors/      what tasks write about their failures
//	                     places.json  where tasks have run
//	                     begun.json   since when, for each place
//	                     fetched.json which outputs were fetched
//	~/.plx/blobs/SUM                  programs, by content
//	~/.plx/files/SU/M                 files and manifests of folders, by content
//	~/.plx/files/programs/            programs on their way to blobs, and lists of their chunks
//	~/.plx/envs/NAME/                 virtual environments, and interpreters that were sent
//	~/.plx/ckpt/NAME/                 checkpoints of the jobs of one name
//	~/.plx/lock                       held by each agent, which "plx prune --all" respects, see [Use]
//	~/.plx/tidied                     when "agent gc" was last run, by its time of change; named as earlier versions know it
//
// Several machines can share a home folder, so a state names the machine whose
// agent wrote it. [Life] tells whether that agent still runs.
package jobfolder

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/envsync/tree"
	"github.com/plx-run/plx/envsync/tree/store"
	"github.com/plx-run/plx/internal/atomicfile"
	"github.com/plx-run/plx/internal/bounded"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// Folder is the path of the folder of one host and job, ~/.plx/jobs/JOB/HOST.
type Folder string

// State is the path of the agent's state.
func (f Folder) State() string { return filepath.Join(string(f), "state.json") }

// GCEvery is how often "agent gc" runs in a home.
const GCEvery = 24 * time.Hour

// LastGC is the path of the file below ~/.plx that tells when "agent gc" was last run.
func LastGC(root string) string { return filepath.Join(root, "tidied") }

// GCDue reports whether "agent gc" was not run lately, by that file.
func GCDue(file fs.FileInfo, now time.Time) bool {
	return file.Size() == 0 || now.Sub(file.ModTime()) >= GCEvery // a file that is new was made just now
}

// Secret is the path of the job's secret.
func (f Folder) Secret() string { return filepath.Join(string(f), "secret") }

// Logs is the folder of the tasks' output.
func (f Folder) Logs() string { return filepath.Join(string(f), "logs") }

// Log is the path of the agent's own log.
func (f Folder) Log() string { return filepath.Join(string(f), "agent.log") }

// Blobs is the path of the list of blobs that the job uses. "agent prune" reads
// it.
func (f Folder) Blobs() string { return filepath.Join(string(f), blobsName) }

const blobsName = "blobs"

// Files with lists of what the job uses beside blobs: folders by their manifests, and
// installed environments.
const (
	manifestsName = "manifests"
	envsName      = "envs"
)

// Work is the working directory that the tasks of the host share. A job without
// --workdir has none.
func (f Folder) Work() string { return filepath.Join(string(f), "work") }

// Task is the working folder of a task.
func (f Folder) Task(t cluster.Task) string {
	return filepath.Join(f.Tasks(), strings.Replace(t.String(), ":", "-", 1))
}

// ErrorFile is where a task of a generation writes why it failed.
func (f Folder) ErrorFile(t cluster.Task, generation int) string {
	return filepath.Join(string(f), "errors", fmt.Sprintf("%s-%d.%d.json", t.Role, t.Index, generation))
}

// Job is the job's name, the last but one element of the path.
func (f Folder) Job() string { return filepath.Base(filepath.Dir(string(f))) }

// Name is the host's folder name, the last element of the path.
func (f Folder) Name() string { return filepath.Base(string(f)) }

// Home returns the user's home folder, which is $HOME everywhere in plx.
func Home() (string, error) {
	dir := os.Getenv("HOME")
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("HOME is %q, want the absolute path of the home folder", dir)
	}
	return dir, nil
}

// Root returns ~/.plx.
func Root() (string, error) {
	dir, err := Home()
	return filepath.Join(dir, ".plx"), err
}

// Of returns the folder of a host and job. It refuses names that lead out of
// ~/.plx/jobs.
func Of(job, name string) (Folder, error) {
	for _, element := range []string{job, name} {
		if err := CheckName(element); err != nil {
			return "", err
		}
	}
	dir, err := Root()
	return Folder(filepath.Join(dir, "jobs", job, name)), err
}

// CheckName refuses what is not one visible element of a path.
func CheckName(name string) error {
	if name == "" || len(name) > 200 || name[0] == '.' || strings.ContainsAny(name, "/\x00\n") {
		return fmt.Errorf("%q is not a valid name", name)
	}
	return nil
}

// Checkpoints returns the folder of the checkpoints that jobs keep under a name,
// or "" without a name. The tasks create it.
func Checkpoints(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	if err := CheckName(name); err != nil {
		return "", err
	}
	dir, err := Root()
	return filepath.Join(dir, "ckpt", name), err
}

// BlobPath returns the path of the blob with a content hash.
func BlobPath(sum string) (string, error) {
	if raw, err := hex.DecodeString(sum); err != nil || len(raw) != 32 {
		return "", fmt.Errorf("%q is not a content hash", sum)
	}
	dir, err := Home()
	return filepath.Join(dir, envsync.BlobPath(sum)), err
}

// Create makes the folder and writes the secret. A folder that an agent has left
// is used again, but only for generations after those that it may have run:
// least is the first of them.
func (f Folder) Create(secret []byte) (least int, err error) {
	old, err := f.ReadState()
	switch {
	case err == nil && LifeOf(old) != Dead:
		return 0, fmt.Errorf("job %s already has an agent on this host, pid %d", f.Job(), old.Supervisor)
	case err == nil && old.Supervisor == 0: // it never started, and has run nothing
		least = old.Least
	case err == nil:
		least = max(old.Least, old.Generation+1)
	case !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	if err := os.MkdirAll(f.Logs(), 0o700); err != nil {
		return 0, fmt.Errorf("make the job's folder: %w", err)
	}
	if err := replace(f.Secret(), []byte(hex.EncodeToString(secret)+"\n")); err != nil {
		return 0, fmt.Errorf("write the job's secret: %w", err)
	}
	return least, nil
}

// replace writes a file that only its owner can read.
func replace(path string, content []byte) error { return atomicfile.WriteFile(path, content, 0o600) }

// Files returns the store of the contents of folders.
func Files() (*store.Store, error) {
	dir, err := Root()
	return store.Open(filepath.Join(dir, "files")), err
}

// Programs returns the store through which programs come. They are moved to where the blobs are.
func Programs() (*store.Store, error) {
	dir, err := Root()
	return store.Open(filepath.Join(dir, "files", "programs")).Beside(filepath.Join(dir, "blobs")), err
}

// Furnish makes the working folders of tasks, each with the files that the user
// sent, or the working directory that they share. It leaves a folder that exists as
// it is, so a later generation finds the files of the one before.
func (f Folder) Furnish(ctx context.Context, spec protocol.Spec, tasks []protocol.TaskSpec) error {
	if spec.Workdir != "" && len(tasks) > 0 {
		id, err := tree.ParseSum(spec.Workdir)
		if err == nil {
			err = f.Build(ctx, id)
		}
		if err != nil {
			return fmt.Errorf("make the working directory: %w", err)
		}
	}
	if err := os.MkdirAll(f.Tasks(), 0o700); err != nil {
		return err
	}
	for _, t := range tasks {
		if err := furnish(ctx, f.Task(t.Task), spec.Copied); err != nil {
			return fmt.Errorf("make the folder of %s: %w", t.Task, err)
		}
	}
	return nil
}

// furnish makes a folder with the content of a manifest; "": an empty one.
func furnish(ctx context.Context, dir, manifest string) error {
	if manifest == "" {
		return os.MkdirAll(dir, 0o700)
	}
	id, err := tree.ParseSum(manifest)
	if err != nil {
		return err
	}
	files, err := Files()
	if err != nil {
		return err
	}
	err = files.Build(ctx, id, dir, nil)
	if errors.As(err, new(*tree.DamagedError)) {
		err = fmt.Errorf("%w: launch again, then they are sent", err)
	}
	return err
}

// RecordBlobs writes down which blobs the job uses, this executable among them,
// so that "agent prune" keeps them.
func (f Folder) RecordBlobs(spec protocol.Spec) error {
	sums := []string{spec.Command.Blob, ownSum()}
	sums = slices.DeleteFunc(sums, func(sum string) bool { return len(sum) != 64 }) // a program on PATH has none
	if err := replace(f.Blobs(), []byte(strings.Join(sums, "\n")+"\n")); err != nil {
		return fmt.Errorf("record the job's files: %w", err)
	}
	manifests, envs := []string{spec.Workdir, spec.Copied}, []string{}
	if v := spec.Command.Venv; v != nil {
		manifests, envs = append(manifests, v.Manifests...), append(envs, v.Folder, v.Base)
	}
	for name, words := range map[string][]string{manifestsName: manifests, envsName: envs} {
		text := strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), "\n")
		if text == "" {
			continue
		}
		if err := replace(filepath.Join(string(f), name), []byte(text+"\n")); err != nil {
			return fmt.Errorf("record the job's files: %w", err)
		}
	}
	return nil
}

// ownSum is the content hash of this executable, if it is a blob: its file's name.
func ownSum() string {
	path, _ := os.Executable() // Linux knows it
	return filepath.Base(path)
}

// UsedBlobs returns the content hashes that the jobs under ~/.plx use, and that
// of this executable. Folders of leaving are not counted.
func UsedBlobs(leaving []Folder) (map[string]bool, error) {
	used, err := words(blobsName, leaving)
	if err == nil {
		used[ownSum()] = true // the next job needs it too
	}
	return used, err
}

// UsedManifests returns the manifests that the jobs under ~/.plx use, without leaving.
func UsedManifests(leaving []Folder) (ids []tree.Sum, err error) {
	used, err := words(manifestsName, leaving)
	if err != nil {
		return nil, err
	}
	for sum := range used {
		id, err := tree.ParseSum(sum)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// Envs returns the folder of installed environments.
func Envs() (string, error) {
	dir, err := Root()
	return filepath.Join(dir, "envs"), err
}

// Env returns the folder of an installed environment. It is an error if the folder is not
// there: tasks would run with another interpreter.
func Env(v *protocol.Venv) (string, error) {
	if err := CheckName(v.Folder); err != nil {
		return "", err
	}
	all, err := Envs()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(all, v.Folder)
	if _, err := os.Stat(filepath.Join(dir, "bin")); err != nil {
		return "", fmt.Errorf("the job's virtual environment is not on this host: %w", err)
	}
	return dir, nil
}

// UsedEnvs returns the names of the environments that the jobs under ~/.plx use, without
// leaving.
func UsedEnvs(leaving []Folder) (map[string]bool, error) { return words(envsName, leaving) }

// words returns the words in the files of a name in all folders of jobs but those of
// leaving.
func words(name string, leaving []Folder) (map[string]bool, error) {
	files, err := each(name)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, file := range files {
		if slices.Contains(leaving, Folder(filepath.Dir(file))) {
			continue
		}
		text, err := bounded.ReadFile(file, bounded.Words)
		if err != nil {
			return nil, fmt.Errorf("read which %s a job uses: %w", name, err)
		}
		for word := range strings.FieldsSeq(string(text)) {
			all[word] = true
		}
	}
	return all, nil
}
