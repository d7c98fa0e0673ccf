package envsync

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Host is how envsync reaches one host. Both methods may be called from
// several goroutines; an error of Run for a script that failed has a method
// ExitStatus() int.
type Host interface {
	// Run runs a POSIX shell script in the home folder.
	Run(ctx context.Context, command string, stdin io.Reader, stdout, stderr io.Writer) error
	// Copy writes size bytes to a temporary name beside path and renames it.
	// A relative path starts at the home folder.
	Copy(ctx context.Context, r io.Reader, size int64, path string, mode fs.FileMode) error
}

// Platform is an operating system and a processor. OS and Arch are Go's names, "linux"
// and "amd64", or uname's in lower case if Go has none.
type Platform struct{ OS, Arch string }

func (p Platform) String() string { return p.OS + "/" + p.Arch }

// Facts is what a host is.
type Facts struct {
	Platform
	// Home is the absolute path of the home folder, which holds .plx. User is the
	// login name.
	Home, User string
	UID        int
	// ServerAddr is the address of the host that this connection came to, from
	// SSH_CONNECTION; empty if SSH_CONNECTION is not set.
	ServerAddr string
	// HostName and BootID tell two names of one machine apart from two
	// machines. A container has its machine's BootID.
	HostName, BootID string
	// FileSystem is a random name kept in ~/.plx/fsid. Hosts with equal names
	// share their home folder.
	FileSystem string
}

const (
	// shortLimit bounds scripts that send no blob: a home on a stuck file
	// server answers never.
	shortLimit  = 60 * time.Second
	outputLimit = 64 << 10
)

// InspectLimit bounds Inspect. It needs less than a second on a host that works.
const InspectLimit = 25 * time.Second

// ErrStuck is the error of a host on which no command runs.
var ErrStuck = fmt.Errorf("no command ran within %v: ForceCommand of its SSH server, the login shell or the disk of the home may hang", InspectLimit)

//go:embed inspect.sh
var inspectScript string

// Inspect learns the facts of one host and makes ~/.plx and ~/.plx/blobs
// there, for nobody but the user. It returns within half a minute. The error says
// so where the home is read-only or full.
func Inspect(ctx context.Context, h Host) (Facts, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, InspectLimit, ErrStuck)
	defer cancel()
	id := make([]byte, 16)
	rand.Read(id) // never fails
	out, err := script(ctx, h, "fsid="+hex.EncodeToString(id)+"\n"+inspectScript)
	if err != nil {
		return Facts{}, fmt.Errorf("inspect: %w", homeTrouble(err))
	}
	facts, err := ReadFacts(out)
	if err != nil {
		return Facts{}, fmt.Errorf("inspect: %w", err)
	}
	return facts, nil
}

// ReadFacts reads the lines "key=value" that inspect.sh and Here print. Values end
// at the line's end, keys that are not known are left alone.
func ReadFacts(out string) (Facts, error) {
	values := map[string]string{}
	for line := range strings.SplitSeq(out, "\n") {
		if key, value, ok := strings.Cut(line, "="); ok {
			values[key] = value
		}
	}
	f := Facts{
		Platform: PlatformOf(values["os"], values["arch"]), Home: values["home"], User: values["user"],
		HostName: values["hostname"], BootID: values["boot"], FileSystem: values["fsid"],
	}
	if words := strings.Fields(values["connection"]); len(words) == 4 {
		f.ServerAddr, _, _ = strings.Cut(words[2], "%") // the zone is the host's own
	}
	uid, err := strconv.Atoi(values["uid"])
	if err != nil || uid < 0 {
		return Facts{}, fmt.Errorf("the host's answer has no user id: %q", short(out))
	}
	f.UID = uid
	for key, value := range values {
		if strings.ContainsFunc(value, unicode.IsControl) {
			return Facts{}, fmt.Errorf("the host's %s holds control characters: %q", short(key), short(value))
		}
	}
	switch {
	case f.OS == "" || f.Arch == "":
		return Facts{}, fmt.Errorf("the host does not tell its platform: %q", short(out))
	case !path.IsAbs(f.Home):
		return Facts{}, fmt.Errorf("the host's home folder is not an absolute path: HOME=%q", short(f.Home))
	case !fileSystemName().MatchString(f.FileSystem):
		return Facts{}, fmt.Errorf("~/.plx/fsid on the host is damaged (%q): remove it", short(f.FileSystem))
	}
	return f, nil
}

var fileSystemName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[[:xdigit:]]{32}$`) })

// goArchs translates what uname -m says. ppc64le, riscv64 and s390x are the same.
var goArchs = map[string]string{
	"x86_64": "amd64", "aarch64": "arm64", "i386": "386", "i486": "386", "i586": "386", "i686": "386",
	"armv6l": "arm", "armv7l": "arm", "armv8l": "arm", "loongarch64": "loong64",
}

// PlatformOf returns the platform of what uname -s and uname -m say.
func PlatformOf(kernel, machine string) Platform {
	return Platform{OS: strings.ToLower(kernel), Arch: cmp.Or(goArchs[machine], strings.ToLower(machine))}
}

// script runs a script that answers briefly and returns its output. What it
// wrote to standard error is part of the error.
func script(ctx context.Context, h Host, command string) (string, error) {
	var out, errs bounded
	err := h.Run(ctx, command, nil, &out, &errs)
	if said := short(strings.Join(strings.Fields(errs.buf.String()), " ")); err != nil && said != "" {
		err = fmt.Errorf("%w: %s", err, said)
	}
	return out.buf.String(), err
}

// homeTroubles are words of the C library and what they mean for a home.
var homeTroubles = []struct{ words, plain string }{
	{"Read-only file system", "the home folder is read-only"},
	{"No space left on device", "the home folder's file system is full"},
	{"Disk quota exceeded", "the home folder's quota is used up"},
	{"Stale file handle", "the home folder's file server has lost it"},
	{"Input/output error", "the home folder's disk or file server is failing"},
	{"Permission denied", "the home folder may not be written"},
	{"Not a directory", "something that is no folder is in the way in ~/.plx"},
}

// homeTrouble says plainly what is wrong with a home that cannot be written.
// A script that knows says so itself, after "plx: ".
func homeTrouble(err error) error {
	if _, plain, told := strings.Cut(err.Error(), "plx: "); told {
		return errors.New(plain)
	}
	for _, t := range homeTroubles {
		if strings.Contains(err.Error(), t.words) {
			return fmt.Errorf("%s: %w", t.plain, err)
		}
	}
	return err
}

// bounded keeps the first outputLimit bytes written to it.
type bounded struct{ buf bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	b.buf.Write(p[:min(len(p), outputLimit-b.buf.Len())])
	return len(p), nil
}

// short makes a host's words fit for an error message.
func short(s string) string {
	const limit = 300
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "..."
	}
	return strings.TrimSpace(s)
}
