// Package bootstrap makes plx run on a host, in one session of a shell there.
//
//	s := bootstrap.New(bootstrap.Config{Host: "gpu01", Act: "agent start", Guess: own, Agent: agents.Of})
//	stream := host.Stream(ctx, s.Script())
//	if err := s.Run(ctx, stream); err != nil {
//		return err
//	}
//	// From here on plx reads and writes the stream.
//
// The script, bootstrap.sh, runs the plx that is there. If there is none it says what is needed
// to place one, and takes orders, one a line: from where plx comes, and what to do with it.
// Whatever arrives is hashed before it runs for the first time. The script tells nothing else of
// the host: plx does, once it runs.
//
// Plx comes packed by gzip, in a file through another session (sftp), or behind an order through
// this one. Of many hosts most take it from one that has it, see [Seeds].
//
// A line of the script begins with a random word. Whatever a host prints before such a line is
// dropped. No path or command is made of what a host says.
package bootstrap

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/envsync"
)

//go:embed bootstrap.sh
var script string

// Config is what runs on a host, and from where it comes.
type Config struct {
	Host string // name, for progress
	// Act are the arguments of plx, as words for a shell.
	Act string
	// Guess is the plx that the host probably needs. Zero: it is not known.
	Guess envsync.Blob
	// Strict has what is there hashed before it runs.
	Strict bool
	// Agent returns plx for a platform. Nil: what is there runs, or nothing does.
	Agent func(context.Context, envsync.Platform) (envsync.Blob, error)
	// Copy writes a new file on the host, through another session. If it fails, or the host has no
	// room to unpack the file, plx comes through this one. Nil: there can be no other session.
	Copy func(ctx context.Context, r io.Reader, path string) error
	// Seeds are the hosts that plx may come from. Nil: it comes from here.
	Seeds *Seeds
	// Begin bounds the first answer, for which a command may have to wait. 0: [StartLimit].
	Begin time.Duration
	// Begun is called when the first answer has come. Nil: nothing is called.
	Begun    func()
	Progress envsync.Progress // may be nil
	// Left counts the bytes that leave this machine. It may be nil.
	Left func(bytes int64)
}

// Stream is the shell on the host that runs the script.
type Stream interface {
	io.ReadWriter
	// Cancel ends a Read or Write under way, and all later ones.
	Cancel(why error)
}

const (
	// StartLimit bounds the start of a command on a host. It needs less than a second on one
	// that works, and longer where start-up files of the login shell are slow.
	StartLimit = 60 * time.Second
	// answerLimit bounds an answer for which the host works little. A home on a stuck file server
	// answers never.
	answerLimit = 60 * time.Second
	// stallLimit is how long a host may take none of the bytes that it gets.
	stallLimit = 60 * time.Second
	// slowest is the least speed, in bytes per second, at which a host may hash or get something.
	slowest = 1 << 20
	// maxNoise is how many bytes may come before an answer.
	maxNoise = 1 << 20
	// maxQuote is how many bytes a message quotes of what a host says.
	maxQuote = 300
	// looks is how often, once in a second, a host looks for what another one has put into the
	// home that they share.
	looks = 5
)

var (
	// ErrStart says that the script has not begun in time.
	ErrStart = errors.New("no command has begun in time")
	// ErrMissing says that the plx that was to run is not there.
	ErrMissing = errors.New("plx is not there any more")
	// ErrEcho says that a terminal is in the place of a shell.
	ErrEcho = errors.New("what it is sent comes back")
	// ErrNoise says that a host prints without end, and does not answer.
	ErrNoise = errors.New("more than 1 MiB came before an answer")
)

// NoAnswer is the error of a shell that does not answer.
type NoAnswer struct {
	Last string // the last line that it printed; "": none
	Err  error
}

func (e *NoAnswer) Error() string {
	text := e.Err.Error()
	if e.Err == io.EOF {
		text = "the shell has ended, and has not answered"
	}
	if e.Last != "" {
		text += fmt.Sprintf("; it printed %q", e.Last)
	}
	return text
}

func (e *NoAnswer) Unwrap() error { return e.Err }

// Refused says why the host cannot have plx, or cannot run it.
type Refused struct {
	Text     string
	Homeless bool // because the shell there does not know its home
	NoHome   bool // because the home is not there
	Limited  bool // because the shell there limits what plx needs
	noExec   bool // because plx is there and may not be executed
}

func (e *Refused) Error() string { return e.Text }

// Session is one conversation with the script.
type Session struct {
	Config
	// Word begins all lines of the script.
	Word string
	// Plx is what runs, once Run has returned nil.
	Plx envsync.Blob

	stream Stream
	tools  []string // programs that the host has
	disk   string   // last line of df on the disk of the home
	most   string   // processes that the shell of a script that has failed may have; "": it has not
	limits []string // of the shell that runs plx: address space and data, in KiB, processes, open files
	home   string   // absolute path on the host
	turn   *turn    // at getting plx, see Seeds; nil: the host had it, or nothing is known yet
	done   bool     // Done was called
}

// New returns a Session.
func New(c Config) *Session { return &Session{Config: c, Word: "plx-" + rand.Text()} }

// Script returns what a POSIX shell is to run. The first line is a comment that nobody but a
// terminal sends back.
func (s *Session) Script() string {
	id := make([]byte, 16)
	rand.Read(id) // never fails
	strict, place := "", ""
	if s.Strict {
		strict = "yes"
	}
	if s.Agent == nil {
		place = "no"
	}
	return fmt.Sprintf("# %[1]s echo \nsay=%[1]s fsid=%s sum=%s strict=%s place=%s act='%s'\n%s", s.Word, hex.EncodeToString(id), s.Guess.Sum, strict, place, s.Act, short(script))
}

// short returns the script without its comments.
func short(script string) string {
	var out strings.Builder
	for line := range strings.Lines(script) {
		if text := strings.TrimLeft(line, "\t"); !strings.HasPrefix(text, "#") {
			out.WriteString(text)
		}
	}
	return out.String()
}

// Run talks with the script until it runs plx, to which all further bytes of the stream belong.
// Whoever gets a nil error calls [Session.Done].
func (s *Session) Run(ctx context.Context, stream Stream) error {
	s.stream = stream
	err := s.run(ctx)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.Plx = envsync.Blob{}
		s.Done(nil)
	}
	return err
}

// Done ends what Run has begun: the host has plx, and gives it to others by seed, or to nobody if
// that is nil. It may be called again.
func (s *Session) Done(seed func(context.Context) (Seed, error)) {
	if s.Seeds != nil && !s.done {
		s.Seeds.leave(s.turn, s.Plx.Sum, seed)
	}
	s.done = true
}

func (s *Session) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { s.stream.Cancel(context.Cause(ctx)) })()
	said, err := s.within(ctx, cmp.Or(s.Begin, StartLimit), ErrStart)
	if err != nil {
		return err
	}
	if s.Begun != nil {
		s.Begun()
	}
	if said.runs() {
		s.Plx = s.Guess
		return nil
	}
	facts := strings.SplitN(said.text, " ", 4)
	if s.Agent == nil || said.verb != "lacks" || len(facts) != 4 || !path.IsAbs(facts[3]) {
		return said.unexpected()
	}
	if !fileSystemName().MatchString(facts[2]) {
		return &Refused{Text: fmt.Sprintf("~/.plx/fsid on the host is damaged (%q): remove it", quote(facts[2]))}
	}
	s.home = facts[3]
	if said, err = s.answer(ctx, answerLimit); err != nil || said.verb != "tools" {
		return cmp.Or(err, said.unexpected())
	}
	s.tools = strings.Fields(said.text)
	agent, err := s.Agent(ctx, envsync.PlatformOf(facts[0], facts[1]))
	if err != nil {
		return err
	}
	s.Plx = agent
	s.order("is %s", agent.Sum)
	if agent.Sum != s.Guess.Sum { // else it is known to lack it
		if here, err := s.look(ctx, agent, 0); here || err != nil {
			return err
		}
	}
	return s.obtain(ctx, agent, facts[2])
}

var fileSystemName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[[:xdigit:]]{32}$`) })

// look has the host look for plx, and reports whether it runs.
func (s *Session) look(ctx context.Context, agent envsync.Blob, tries int) (here bool, err error) {
	s.order("look %d", tries)
	said, err := s.answer(ctx, s.limit(agent))
	if err == nil && !said.runs() && said.verb != "absent" {
		err = said.unexpected()
	}
	return said.runs(), err
}

// obtain brings plx to the host.
func (s *Session) obtain(ctx context.Context, agent envsync.Blob, fileSystem string) error {
	if s.Seeds == nil {
		return s.give(ctx, agent)
	}
	var shared bool
	var err error
	if s.turn, shared, err = s.Seeds.enter(ctx, fileSystem+agent.Sum); err != nil {
		return err
	}
	if shared { // but equal names of file systems may also come from a copied disk
		if here, err := s.look(ctx, agent, looks); here || err != nil {
			return err
		}
	}
	able := slices.Contains(s.tools, "bash") && slices.Contains(s.tools, "timeout")
	if from := s.Seeds.choose(ctx, s.turn, agent.Sum, able); from != nil {
		s.tell(agent, 0, agent.Size)
		missed, err := s.fetch(ctx, agent, from)
		if err != nil {
			return err
		}
		if missed == nil {
			s.tell(agent, agent.Size, agent.Size)
			return nil
		}
		s.Seeds.miss(s.turn, missed)
	}
	return s.give(ctx, agent)
}

var plainAddress = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9A-Za-z.:_-]+$`) })

// fetch has the host take plx from another one. missed says why it could not.
func (s *Session) fetch(ctx context.Context, agent envsync.Blob, from *source) (missed, err error) {
	o, err := from.open()
	if err != nil {
		return err, nil
	}
	if !plainAddress().MatchString(o.Host) || !plainAddress().MatchString(o.Port) || !plainAddress().MatchString(o.Token) {
		return fmt.Errorf("%q is no address for a script", o.Host), nil
	}
	limit := seedTime + time.Duration(agent.Size/slowest)*time.Second
	s.order("peer %s %s %d %s", o.Host, o.Port, int(limit.Seconds()), o.Token)
	said, err := s.answer(ctx, limit+s.limit(agent))
	if err == nil && said.verb == "unhashed" {
		said, err = s.readBack(ctx, agent, said)
	}
	switch {
	case err != nil || said.runs():
		return nil, err
	case said.verb == "missed" && troubleIn(said.text, fullOrReadOnly) != "": // whoever gives it
		return nil, &Refused{Text: HomeTrouble(quote(said.text))}
	case said.verb == "missed":
		return fmt.Errorf("host %s took nothing from %s: %s", s.Host, net.JoinHostPort(o.Host, o.Port), quote(said.text)), nil
	case said.verb == "wrong":
		return fmt.Errorf("host %s took something else from %s", s.Host, net.JoinHostPort(o.Host, o.Port)), nil
	}
	return nil, said.unexpected()
}

// give sends plx from this machine.
func (s *Session) give(ctx context.Context, agent envsync.Blob) error {
	packed, err := agent.Packed()
	if err != nil {
		return err
	}
	if !slices.Contains(s.tools, "gzip") {
		packed = nil
	}
	said := answer{verb: "missed"}
	if s.Copy != nil && packed != nil && s.upload(ctx, agent, packed) == nil {
		said, err = s.answer(ctx, s.limit(agent))
	}
	if err == nil && said.verb == "missed" { // whatever is wrong with a file, as a full disk, the shell says in words
		said, err = s.poured(ctx, agent, packed)
	}
	if err == nil && said.verb == "unhashed" {
		said, err = s.readBack(ctx, agent, said)
	}
	var refused *Refused
	switch {
	case errors.As(err, &refused) && (refused.noExec || refused.Limited):
		return refused
	case errors.As(err, &refused):
		return fmt.Errorf("send plx: %w", s.explain(refused, agent.Size))
	case err != nil:
		return fmt.Errorf("send plx: %w", err)
	case said.runs():
		return nil
	case said.verb == "wrong":
		return fmt.Errorf("send plx: its SHA-256 on the host is %s, not %s: it was damaged on the way, or changed here while it was sent", quote(said.text), agent.Sum)
	}
	return said.unexpected()
}

// upload sends plx in a file through another session, unless that takes nothing for stallLimit.
func (s *Session) upload(ctx context.Context, agent envsync.Blob, packed []byte) error {
	name := "." + s.Word + ".gz"
	size := int64(len(packed))
	s.tell(agent, 0, size)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stuck := time.AfterFunc(stallLimit, cancel)
	defer stuck.Stop()
	from := &telling{r: bytes.NewReader(packed), tell: func(sent, more int64) {
		stuck.Reset(stallLimit)
		s.leave(more)
		s.tell(agent, sent, size)
	}}
	err := s.Copy(ctx, from, path.Join(s.home, envsync.BlobPath(name)))
	if err == nil {
		s.order("unpack")
	}
	return err
}

// poured sends plx behind an order, and returns the answer. A host that takes no more says why, and
// its session ends only when that was read.
func (s *Session) poured(ctx context.Context, agent envsync.Blob, packed []byte) (answer, error) {
	waiting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit, ended := s.limit(agent), make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.pour(waiting, agent, packed); err != nil {
			cancel(err)
			return
		}
		time.AfterFunc(limit, func() { cancel(fmt.Errorf("no answer within %v: is the file system of its home stuck?", limit)) })
	}()
	said, err := s.answer(waiting, 24*time.Hour)
	if err != nil {
		cancel(err) // ends a Write under way
	}
	<-ended
	return said, err
}

// pour sends plx behind an order.
func (s *Session) pour(ctx context.Context, agent envsync.Blob, packed []byte) error {
	from, size, program := io.Reader(bytes.NewReader(packed)), int64(len(packed)), "gzip"
	if packed == nil {
		content, err := agent.Open()
		if err != nil {
			return fmt.Errorf("read it here: %w", err)
		}
		defer content.Close() // opened for reading: nothing to lose
		from, size, program = content, agent.Size, "cat"
	}
	s.tell(agent, 0, size)
	defer context.AfterFunc(ctx, func() { s.stream.Cancel(context.Cause(ctx)) })()
	stall := fmt.Errorf("it took nothing for %v", stallLimit)
	stuck := time.AfterFunc(stallLimit, func() { s.stream.Cancel(stall) })
	defer stuck.Stop()
	s.order("take %d %s", size, program)
	piece := make([]byte, 128<<10)
	for sent := int64(0); sent < size; {
		n, err := from.Read(piece[:min(int64(len(piece)), size-sent)])
		if _, failed := s.stream.Write(piece[:n]); failed != nil {
			if !stuck.Stop() {
				return stall
			}
			return nil // the host says why it takes no more
		}
		sent += int64(n)
		s.leave(int64(n))
		s.tell(agent, sent, size)
		stuck.Reset(stallLimit)
		if err != nil && sent < size {
			return fmt.Errorf("read it here: %w", err)
		}
	}
	return nil
}

// readBack compares the hash of what a host got that cannot hash it itself.
func (s *Session) readBack(ctx context.Context, agent envsync.Blob, said answer) (answer, error) {
	if said.text != strconv.FormatInt(agent.Size, 10) {
		return answer{verb: "wrong", text: said.text + " bytes"}, nil
	}
	s.order("back %d", agent.Size)
	hash := sha256.New()
	limit := s.limit(agent)
	err := Within(ctx, s.stream, limit, fmt.Errorf("it has not come within %v", limit), func() error {
		_, err := io.CopyN(hash, s.stream, agent.Size)
		return err
	})
	if err != nil {
		return answer{}, fmt.Errorf("read it back: %w", err)
	}
	if sum := hex.EncodeToString(hash.Sum(nil)); sum != agent.Sum {
		return answer{verb: "wrong", text: sum}, nil
	}
	s.order("trust")
	return s.answer(ctx, answerLimit)
}

// limit is how long a host may take to hash and to store plx.
func (s *Session) limit(agent envsync.Blob) time.Duration {
	return answerLimit + time.Duration(agent.Size/slowest)*time.Second
}

func (s *Session) tell(agent envsync.Blob, sent, total int64) {
	if s.Seeds != nil {
		s.Seeds.progress()
	}
	if s.Progress != nil {
		s.Progress(s.Host, agent.Name, sent, total)
	}
}

func (s *Session) leave(bytes int64) {
	if s.Left != nil {
		s.Left(bytes)
	}
}

// order sends one line. If that fails, the next answer tells why: a shell that has ended said it.
func (s *Session) order(format string, args ...any) {
	_, _ = fmt.Fprintf(s.stream, format+"\n", args...)
}

// answer is a line that the script has said.
type answer struct{ verb, text string }

// runs reports whether plx runs now.
func (a answer) runs() bool { return a.verb == "runs" }

func (a answer) unexpected() error {
	return fmt.Errorf("the shell has answered %q, which is no answer", quote(a.verb+" "+a.text))
}

// answer reads the next line of the script. Its error is a *Refused if the script has ended
// because of something that is wrong there.
func (s *Session) answer(ctx context.Context, limit time.Duration) (answer, error) {
	return s.within(ctx, limit, fmt.Errorf("no answer within %v: is the file system of its home stuck?", limit))
}

// within is answer with the error of a host that takes longer.
func (s *Session) within(ctx context.Context, limit time.Duration, late error) (answer, error) {
	line, err := s.lineWithin(ctx, limit, late)
	if err != nil {
		return answer{}, err
	}
	verb, text, _ := strings.Cut(line, " ")
	switch verb {
	case "runs":
		s.limits = strings.Fields(text)
	case "echo":
		return answer{}, ErrEcho
	case "missing":
		return answer{}, ErrMissing
	case "disk":
		if s.disk != "" {
			break
		}
		s.disk = cmp.Or(text, "?")
		return s.answer(ctx, limit)
	case "processes":
		if s.most != "" {
			break
		}
		s.most = cmp.Or(text, "?")
		return s.answer(ctx, limit)
	case "homeless":
		return answer{}, &Refused{Text: fmt.Sprintf("the shell there has no home: HOME=%q", quote(text)), Homeless: true}
	case "noexec":
		why := "is the home mounted noexec?"
		if mount := quote(text); mount != "" {
			why = mount + " is mounted noexec"
		}
		return answer{}, &Refused{Text: NotExecutable(why), noExec: true}
	case "nohome":
		return answer{}, &Refused{Text: fmt.Sprintf("the home folder %s is not there", quote(text)), NoHome: true}
	case "error":
		if n, err := strconv.Atoi(s.most); err == nil && (noProcess(text) || text == "" && n < fewProcesses) {
			return answer{}, &Refused{Text: fmt.Sprintf("plx cannot start there: "+OfLimits+"the number of processes to %d (ulimit -u)", n), Limited: true}
		}
		return answer{}, &Refused{Text: cmp.Or(HomeTrouble(quote(text)), "a program that plx needs was ended there, and nothing says why: does a limit of the shell (ulimit -a) end it?")}
	}
	return answer{verb: verb, text: text}, nil
}

// Line returns the next line that begins with Word, without that: plx may say one too.
func (s *Session) Line(ctx context.Context, limit time.Duration) (string, error) {
	return s.lineWithin(ctx, limit, fmt.Errorf("no answer within %v", limit))
}

func (s *Session) lineWithin(ctx context.Context, limit time.Duration, late error) (line string, err error) {
	var last string
	err = Within(ctx, s.stream, limit, late, func() (err error) {
		line, last, err = s.line()
		return err
	})
	if err != nil {
		err = &NoAnswer{last, err}
	}
	return line, err
}

// Within bounds what reads or writes a stream, which is of no use after the end of the limit or of
// ctx. late is the error of what takes longer.
func Within(ctx context.Context, stream Stream, limit time.Duration, late error, talk func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { stream.Cancel(context.Cause(ctx)) })
	err := talk()
	if !stop() {
		err = context.Cause(ctx)
	}
	return err
}

// NotExecutable says that the host may not execute plx. why says or asks for what reason. The
// verdict of a job shows no hint, so what helps is in the text.
func NotExecutable(why string) string {
	return "programs in ~/.plx cannot be executed: " + why + "; mount it without noexec, or make ~/.plx a link to a folder on another disk"
}

// line returns what follows the word in the next line that has it. It reads no byte beyond it.
// last is the last line before it.
func (s *Session) line() (text, last string, err error) {
	mark := []byte(s.Word + " ")
	var line []byte
	one := make([]byte, 1)
	for total := 0; ; total++ {
		if total > maxNoise {
			return "", last, ErrNoise
		}
		n, err := s.stream.Read(one)
		if n == 0 && err == nil {
			continue
		}
		if err != nil && n == 0 {
			return "", cmp.Or(quote(string(line)), last), err
		}
		if one[0] != '\n' {
			line = append(line, one[0])
			continue
		}
		if at := bytes.Index(line, mark); at >= 0 {
			return strings.TrimSpace(string(line[at+len(mark):])), last, nil
		}
		last = cmp.Or(quote(string(line)), last)
		line = line[:0]
	}
}

// fewProcesses are too few for plx with certainty.
const fewProcesses = 16

// OfLimits begins what an agent says for which the shell there limits too much.
const OfLimits = "the shell limits "

// Limited returns why plx has ended there before it began, if a limit of the shell is the reason;
// otherwise nil. said is what it has printed: what is wrong, or the stacks that Go prints.
func (s *Session) Limited(said string) *Refused {
	if _, why, told := strings.Cut(said, "plx agent: "+OfLimits); told {
		why, _, _ = strings.Cut(why, "\n")
		return &Refused{Text: "plx cannot start there: " + OfLimits + quote(why), Limited: true}
	}
	crash := strings.Contains(said, "fatal error: ") || strings.Contains(said, "runtime: ") || strings.Contains(said, "runtime/") || strings.Contains(said, "Segmentation fault")
	threads := strings.Contains(said, "OS thread") || strings.Contains(said, "pthread_create")
	files := strings.Contains(said, "failed with 24") || strings.Contains(said, "too many open files") // EMFILE
	var found []string
	for i, limit := range s.limits {
		n, err := strconv.ParseInt(limit, 10, 64)
		switch {
		case err != nil: // unlimited
		case i == 2 && (threads || crash && n < fewProcesses):
			found = append(found, fmt.Sprintf("the number of processes to %d (ulimit -u)", n))
		case i == 3 && files:
			found = append(found, fmt.Sprintf("the number of open files to %d (ulimit -n)", n))
		case i < 2 && !threads && !files && (crash || strings.TrimSpace(said) == ""):
			found = append(found, fmt.Sprintf("%s to %d MiB (ulimit %s)", []string{"the address space", "the memory for data"}[i], n>>10, []string{"-v", "-d"}[i]))
		}
	}
	if len(found) == 0 {
		return nil
	}
	return &Refused{Text: "plx cannot start there: " + OfLimits + strings.Join(found, " and "), Limited: true}
}

// noProcess reports whether a shell says that it could start no process.
func noProcess(said string) bool {
	said = strings.ToLower(said)
	return strings.Contains(said, "fork") && (strings.Contains(said, "cannot fork") || strings.Contains(said, "resource temporarily unavailable"))
}

// LimitHint is the hint for a host that limits what plx needs.
const LimitHint = "raise the limit in the file that sets it: a start-up file of the login shell (such as .bashrc), or /etc/security/limits.conf"

// homeTroubles are words of the C library and what they mean for a home.
var homeTroubles = []struct{ words, plain string }{
	{"read-only file system", "the home folder is read-only"},
	{"no space left on device", "the home folder's file system is full"},
	{"disk quota exceeded", "the home folder's quota is used up"},
	{"stale file handle", "the home folder's file server has lost it"},
	{"stale nfs file handle", "the home folder's file server has lost it"},
	{"input/output error", "the home folder's disk or file server is failing"},
	{"file size limit exceeded", "the shell limits the size of files (ulimit -f)"},
	{"permission denied", "the home folder may not be written"},
	{"not a directory", "something that is no folder is in the way in ~/.plx"},
}

// HomeTrouble says plainly what is wrong with a home that cannot be written. What knows says so
// itself, after "plx: ".
func HomeTrouble(said string) string {
	if plain, told := strings.CutPrefix(said, "plx: "); told {
		return plain
	}
	if plain := troubleIn(said, len(homeTroubles)); plain != "" {
		return plain + ": " + said
	}
	return said
}

// troubleIn finds one of the first homeTroubles in a text; "": none is there.
func troubleIn(said string, first int) string {
	for _, t := range homeTroubles[:first] {
		if strings.Contains(strings.ToLower(said), t.words) {
			return t.plain
		}
	}
	return ""
}

// fullOrReadOnly are the first homeTroubles, which no network has.
const fullOrReadOnly = 3

// explain adds to an error how much room the disk has, if it has too little for size bytes.
func (s *Session) explain(err error, size int64) error {
	f := strings.Fields(s.disk)
	if len(f) < 4 {
		return err
	}
	if free, unread := strconv.ParseInt(f[3], 10, 64); unread == nil && free >= 0 && free < size>>10 {
		return fmt.Errorf("the home folder's file system has %d MiB left and %d MiB are needed: %w", free>>10, size>>20+1, err)
	}
	return err
}

// quote makes a host's words fit for an error message.
func quote(s string) string {
	s = strings.TrimSpace(s)
	if len(s) > maxQuote {
		s = strings.ToValidUTF8(s[:maxQuote], "") + "..."
	}
	return s
}

// telling is a reader that tells how far it has been read.
type telling struct {
	r    io.Reader
	sent int64                  // number of bytes read
	tell func(sent, more int64) // gets sent after every read, and how much it was
}

func (t *telling) Read(p []byte) (int, error) {
	n, err := t.r.Read(p)
	if n > 0 {
		t.sent += int64(n)
		t.tell(t.sent, int64(n))
	}
	return n, err
}
