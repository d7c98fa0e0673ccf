package envsync

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// Platform is an operating system and a processor. OS and Arch are Go's names, "linux"
// and "amd64", or uname's in lower case if Go has none.
type Platform struct {
	OS   string `json:"os"`
	Arch string `json:"arch"`
}

func (p Platform) String() string { return p.OS + "/" + p.Arch }

// Facts is what a host is.
type Facts struct {
	Platform
	// ServerAddr is the address of the host that this connection came to, from
	// SSH_CONNECTION; empty if SSH_CONNECTION is not set.
	ServerAddr string `json:"serverAddr,omitempty"`
	// HostName and BootID tell two names of one machine apart from two
	// machines. A container has its machine's BootID.
	HostName string `json:"hostName"`
	BootID   string `json:"boot,omitempty"`
	// FileSystem is a random name kept in ~/.plx/fsid. Hosts with equal names
	// share their home folder.
	FileSystem string `json:"fsid"`
}

// ReadFacts reads what Here returns on a host, which may answer anything.
func ReadFacts(out []byte) (f Facts, err error) {
	if err := json.Unmarshal(out, &f); err != nil {
		return Facts{}, fmt.Errorf("the host does not tell what it is: %q: %w", short(string(out)), err)
	}
	for _, value := range []string{f.OS, f.Arch, f.ServerAddr, f.HostName, f.BootID} {
		if strings.ContainsFunc(value, unicode.IsControl) {
			return Facts{}, fmt.Errorf("the host's answer holds control characters: %q", short(value))
		}
	}
	switch {
	case f.OS == "" || f.Arch == "":
		return Facts{}, fmt.Errorf("the host does not tell its platform: %q", short(string(out)))
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
