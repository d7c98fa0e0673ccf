package doctor

import (
	_ "embed"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
)

//go:embed facts.sh
var factsScript string

// Facts is what a host says of itself. A number that is [Unknown] was not to be had.
type Facts struct {
	OS        string `json:"os"`     // as uname prints it
	Arch      string `json:"arch"`   // as uname prints it
	Kernel    string `json:"kernel"` // version
	HostName  string `json:"hostname"`
	User      string `json:"user"`
	UID       int    `json:"uid"`
	Home      Folder `json:"home"` // ~/.plx, or the home if that is not there yet
	Tmp       Folder `json:"tmp"`
	OpenFiles Limit  `json:"open_files"` // of what a login starts
	Processes Limit  `json:"processes"`  // of the user

	// Skew is how far the host's clock is ahead of this machine's, in seconds, and
	// SkewError how far that may be wrong. Unknown is SkewError < 0.
	Skew      float64 `json:"clock_skew_s"`
	SkewError float64 `json:"clock_skew_error_s"`

	begun    bool   // the script has begun
	complete bool   // the script came to its end
	step     string // the folder that the script looked at last
}

// Unknown is a number that the host did not tell.
const Unknown = -1

// Folder is what a host says of a folder.
type Folder struct {
	Path       string `json:"path"`
	Missing    bool   `json:"missing,omitempty"`
	Unwritable string `json:"unwritable,omitempty"` // why no file could be written; "": one could
	NoExec     bool   `json:"noexec,omitempty"`     // a program there cannot be executed
	Mount      string `json:"mount,omitempty"`      // where the file system is mounted
	FreeKiB    int64  `json:"free_kib"`
	FreeInodes int64  `json:"free_inodes"` // Unknown also for file systems that do not count them
}

// Limit is a resource limit. Unlimited is a large number.
type Limit struct {
	Soft int64 `json:"soft"`
	Hard int64 `json:"hard"`
}

const unlimited = int64(1) << 62

// exchange tells when a host was asked for its clock, by this machine's clock.
type exchange struct{ asked, answered time.Time }

// parseFacts reads what facts.sh has printed, maybe a part of it. It drops control
// characters, and lines that it does not understand.
func parseFacts(out string, at exchange) Facts {
	values := map[string]string{}
	for line := range strings.Lines(out) {
		if key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "="); ok {
			values[key] = value
		}
	}
	f := Facts{OS: values["os"], Arch: values["arch"], Kernel: values["kernel"], HostName: values["hostname"], User: values["user"],
		UID: int(number(values["uid"])), OpenFiles: parseLimit(values["files"]), Processes: parseLimit(values["processes"]),
		Home: parseFolder(values, "home"), Tmp: parseFolder(values, "tmp"),
		begun: values["begun"] == "yes", complete: values["done"] == "yes", step: values["step"]}
	f.Skew, f.SkewError = parseClock(values["now"], at)
	return f
}

func parseFolder(values map[string]string, key string) Folder {
	f := Folder{Path: values[key+".path"], Missing: values[key+".missing"] == "yes", NoExec: values[key+".noexec"] == "yes", FreeKiB: Unknown, FreeInodes: Unknown}
	if said, is := values[key+".unwritable"]; is {
		f.Unwritable = cause(said)
	}
	if _, free, mount := parseDF(values[key+".disk"]); mount != "" {
		f.FreeKiB, f.Mount = free, mount
	}
	if total, free, _ := parseDF(values[key+".inodes"]); total > 0 {
		f.FreeInodes = free
	}
	return f
}

// cause returns the words of the C library after the last colon of a program's message.
func cause(said string) string {
	said = strings.TrimSpace(said)
	if i := strings.LastIndex(said, ": "); i >= 0 {
		said = said[i+2:]
	}
	if said == "" {
		return "the reason is not known"
	}
	return said
}

// parseDF reads a line of df -P: a name, three numbers, a percentage, and where it is
// mounted. mount is empty if the line is another.
func parseDF(line string) (total, free int64, mount string) {
	fields := strings.Fields(line)
	for i := 4; i+1 < len(fields); i++ {
		if point := strings.Join(fields[i+1:], " "); (strings.HasSuffix(fields[i], "%") || fields[i] == "-") && path.IsAbs(point) {
			return number(fields[i-3]), number(fields[i-1]), point
		}
	}
	return Unknown, Unknown, ""
}

// parseLimit reads the columns of /proc/self/limits after the name.
func parseLimit(columns string) Limit {
	fields := strings.Fields(columns)
	if len(fields) < 2 {
		return Limit{Unknown, Unknown}
	}
	return Limit{limit(fields[0]), limit(fields[1])}
}

func limit(text string) int64 {
	if text == "unlimited" {
		return unlimited
	}
	return number(text)
}

// number reads a number that is not negative. Everything else is Unknown.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return Unknown
	}
	return n
}

// parseClock reads seconds since 1970, with or without a fraction. Some hosts print the
// letters %N or N in its place.
func parseClock(text string, at exchange) (skew, wrong float64) {
	whole, fraction, _ := strings.Cut(text, ".")
	seconds := number(whole)
	if seconds < 0 || at.answered.IsZero() {
		return 0, Unknown
	}
	nanos, err := strconv.ParseInt(fraction, 10, 64)
	exact := err == nil && len(fraction) == 9
	if !exact {
		nanos = int64(time.Second / 2)
	}
	trip := at.answered.Sub(at.asked)
	middle := at.asked.Add(trip / 2)
	wrong = (trip / 2).Seconds()
	if !exact {
		wrong += 0.5
	}
	// Seconds and not a Duration: a clock may be centuries off.
	return float64(seconds-middle.Unix()) + float64(nanos-int64(middle.Nanosecond()))/1e9, wrong
}

// span writes a number of seconds for people.
func span(seconds float64) string {
	switch {
	case seconds < 120:
		return fmt.Sprintf("%.0f s", seconds)
	case seconds < 2*3600:
		return fmt.Sprintf("%.0f min", seconds/60)
	case seconds < 2*24*3600:
		return fmt.Sprintf("%.0f hours", seconds/3600)
	}
	return fmt.Sprintf("%.0f days", seconds/24/3600)
}
