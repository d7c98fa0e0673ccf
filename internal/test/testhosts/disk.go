package testhosts

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/plx-run/plx/internal/test/executable"
)

// disk is what a host keeps while its power is off: a folder of this machine,
// from which the boot binds files into place.
type disk struct {
	name    string // of the host, such as h1
	number  int    // of the host, from 1
	dir     string // folder of this machine that holds everything
	home    string // root's home of the host, as a folder of this machine
	options Options

	container bool // the next boot keeps the boot id
}

func newDisk(n *network, number int, o Options) *disk {
	name := fmt.Sprintf("h%d", number)
	d := &disk{name: name, number: number, dir: filepath.Join(n.dir, name), options: o}
	d.home = d.path("home")
	if o.SharedHome {
		d.home = filepath.Join(n.dir, "home")
	}
	return d
}

// sshPort is the port of every sshd.
const sshPort = 22

func (d *disk) path(name string) string { return filepath.Join(d.dir, name) }

// prepare writes all that the host's boot binds into place. hosts is the text of
// /etc/hosts, authorized the line that lets the client in.
func (d *disk) prepare(hosts, authorized string) error {
	for _, folder := range []string{"ssh", "bin", "gpus"} {
		if err := os.MkdirAll(d.path(folder), 0o755); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(d.home, 0o700); err != nil {
		return err
	}
	if d.options.SharedHome {
		if err := os.Symlink(d.home, d.path("home")); err != nil {
			return err
		}
	}
	for name, text := range d.files(hosts, authorized) {
		if err := os.WriteFile(d.path(name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := d.writeHostKeys(); err != nil {
		return err
	}
	if d.options.NoisyRC {
		if err := os.WriteFile(filepath.Join(d.home, ".bashrc"), []byte(noisyRC), 0o644); err != nil {
			return err
		}
	}
	if gpus := d.options.GPUs; d.number <= len(gpus) {
		return d.setGPUs(gpus[d.number-1])
	}
	return nil
}

// noisyRC prints what people's rc files print: greetings on both streams,
// colours, and a line that does not end.
const noisyRC = `echo "Welcome to $(hostname)!"
printf '\033[1;32mall systems green\033[0m\n'
echo "module load: warning: no such module" >&2
printf 'no newline here'
printf 'nor here' >&2
`

func (d *disk) files(hosts, authorized string) map[string]string {
	return map[string]string{
		"nothing":             "",
		"hostname":            d.name + "\n",
		"hosts":               hosts,
		"machine-id":          strings.ReplaceAll(newUUID(), "-", "") + "\n",
		"ssh/sshd_config":     d.sshdConfig(),
		"ssh/authorized_keys": authorized,
	}
}

// newBootID gives a boot an id of its own; the kernel's is the machine's. A container
// keeps the one it has.
func (d *disk) newBootID() error {
	if d.container {
		return nil
	}
	return os.WriteFile(d.path("boot_id"), []byte(newUUID()+"\n"), 0o444)
}

func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// setTool puts a program into the host's /usr/local/bin, at once and for good. An
// empty script removes it.
func (d *disk) setTool(name, script string) error {
	path := filepath.Join(d.path("bin"), name)
	if script == "" {
		if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	return replaceFile(path, script, 0o755)
}

// replaceFile never shows a reader half of a file, nor a file that is being
// written to one who executes it.
func replaceFile(path, text string, mode os.FileMode) error {
	temporary := path + ".new"
	if err := executable.Write(temporary, []byte(text), mode); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
