package envsync

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

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

// ReadFacts reads the lines "key=value" that Here prints. Values end
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

// short makes a host's words fit for an error message.
func short(s string) string {
	const limit = 300
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "") + "..."
	}
	return strings.TrimSpace(s)
}
