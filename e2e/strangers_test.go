//go:build linux

package e2e

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/ssh"

	"github.com/plx-run/plx/internal/test/bootstraptest"
	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/launcher/protocol"
)

// hostile is a text from an untrusted source. It contains every byte and every
// sequence that a terminal interprets. Each of its line breaks is followed by
// "plx: all well", which imitates a line of plx.
var hostile = func() string {
	text := "BEGIN\x1b[2J\x1b]0;title\a\x1b[5;35mpaint\x1bPq\x1b\\"
	for b := range 0x100 {
		if b < 0x20 || b >= 0x7f {
			text += "." + string([]byte{byte(b)})
		}
	}
	for r := rune(0x80); r <= 0x9f; r++ {
		text += "." + string(r)
	}
	for _, r := range bidirectional {
		text += "." + string(r)
	}
	return text + "\nplx: all well\r\nplx: all well\rplx: all well\x1b[5mEND"
}()

const bidirectional = "\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"

// without returns the text hostile without the given ASCII characters.
func without(chars string) string {
	text := hostile
	for _, c := range []byte(chars) {
		text = strings.ReplaceAll(text, string([]byte{c}), "")
	}
	return text
}

// ownSequences matches the terminal sequences that plx itself writes: colours,
// and on a terminal also sequences that move to the progress rows and erase
// them.
var ownSequences = regexp.MustCompile(`\x1b\[(|0|1|2|31|32|33|36|1;36|1;31|38;5;\d+)m|\x1b\[K|\x1b\[A`)

// harmless fails the test if text, which plx has printed, contains a byte that
// a terminal interprets, or a line that imitates a line of plx. terminal means
// that plx printed to a terminal.
func harmless(t *testing.T, how, text string, terminal bool) {
	t.Helper()
	plain := harmlessBytes(t, how, text, terminal)
	if regexp.MustCompile(`(?m)^(plx: )?plx: all well`).MatchString(plain) {
		t.Errorf("%s: a stranger has written a line of plx:\n%s", how, clip(plain))
	}
}

// harmlessBytes is like harmless, but for the output of a program, which may
// contain any lines. It returns the text without the terminal sequences that
// plx writes.
func harmlessBytes(t *testing.T, how, text string, terminal bool) (plain string) {
	t.Helper()
	plain = ownSequences.ReplaceAllString(text, "")
	if terminal { // on a terminal, plx keeps the colours of a program
		plain = regexp.MustCompile(`\x1b\[[0-9;]*m`).ReplaceAllString(plain, "")
		plain = strings.ReplaceAll(plain, "\r\n", "\n")
	}
	for at, r := range plain {
		_, size := utf8.DecodeRuneInString(plain[at:])
		own := r == '\n' || r == '\t' || terminal && r == '\r' && !strings.HasPrefix(plain[at:], "\rplx: all well") // a row is redrawn
		if r == utf8.RuneError && size == 1 || r < ' ' && !own || r >= 0x7f && r <= 0x9f || strings.ContainsRune(bidirectional, r) {
			t.Errorf("%s: %q reached the terminal in\n%q", how, plain[at:at+size], clip(text))
			break
		}
	}
	return plain
}

// quoted runs plx three times against an untrusted source: with pipes, with
// pipes and colours, and on a terminal. No byte of the source may control the
// terminal. shown means that plx must quote the source's text.
func (b *bench) quoted(shown bool, args ...string) {
	b.t.Helper()
	b = b.in(b.t)
	b.env = append(slices.Clip(b.env), "PLX_COLOR=always")
	res := b.run(args...)
	harmless(b.t, fmt.Sprintf("plx %q, stdout", args), res.stdout, false)
	harmless(b.t, fmt.Sprintf("plx %q, stderr", args), res.stderr, false)
	screen := onTerminal(b, res.code, nil, args...)
	harmless(b.t, fmt.Sprintf("plx %q, on a terminal", args), screen, true)
	if shown != regexp.MustCompile("BEGIN|END").MatchString(res.stdout+res.stderr) {
		b.t.Errorf("plx %q: the stranger is quoted: %v, want %v:\n%s%s", args, !shown, shown, clip(res.stdout), clip(res.stderr))
	}
}

// stranger starts an untrusted SSH server on the loopback interface; serve
// handles its connections.
func (b *bench) stranger(name string, serve func(net.Conn)) {
	b.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // closed
			}
			conn.SetDeadline(time.Now().Add(patience.Limit)) // ignore the error: a closed connection has no deadline
			all.Go(func() { defer conn.Close(); serve(conn) })
		}
	})
	b.t.Cleanup(func() { listener.Close(); all.Wait() })
	folder := filepath.Join(b.home, ".ssh")
	key, err := ssh.MarshalPrivateKey(newKey(), "")
	if err == nil {
		err = errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "id_ed25519"), pem.EncodeToMemory(key), 0o600))
	}
	if err != nil {
		b.t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	appendTo(b.t, filepath.Join(folder, "config"), fmt.Sprintf("Host %s\nHostName 127.0.0.1\nPort %d\n", name, port))
	appendTo(b.t, filepath.Join(folder, "known_hosts"), fmt.Sprintf("[127.0.0.1]:%d %s", port, ssh.MarshalAuthorizedKey(hostKey().PublicKey())))
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = file.WriteString(text)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// hostKey returns the SSH host key of all untrusted servers.
var hostKey = sync.OnceValue(func() ssh.Signer {
	signer, err := ssh.NewSignerFromKey(newKey())
	if err != nil {
		panic(err) // cannot happen with a valid key
	}
	return signer
})

func newKey() ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	rand.Read(seed) // it never fails
	return ed25519.NewKeyFromSeed(seed)
}

// packet returns an unencrypted SSH packet, as peers send them before the key
// exchange.
func packet(payload []byte) []byte {
	padding := 8 - (5+len(payload))%8 + 4
	if (5+len(payload)+padding)%8 != 0 {
		padding = 16 - (5+len(payload))%8
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(1+len(payload)+padding))
	return append(append(append(b, byte(padding)), payload...), make([]byte, padding)...)
}

// beforeKey returns a server that sends an SSH version and then the given
// packets, before any key exchange.
func beforeKey(version string, payloads ...any) func(net.Conn) {
	return func(conn net.Conn) {
		io.WriteString(conn, version+"\r\n") // ignore the error: the client may have disconnected
		for _, p := range payloads {
			conn.Write(packet(ssh.Marshal(p)))
		}
		io.Copy(io.Discard, conn)
	}
}

type kexInit struct {
	Cookie                    [16]byte `sshtype:"20"`
	Kex, HostKeys             []string
	Ciphers, CiphersBack      []string
	MACs, MACsBack            []string
	Compression, CompressBack []string
	Languages, LanguagesBack  []string
	FirstKexFollows           bool
	Reserved                  uint32
}

type disconnect struct {
	Reason   uint32 `sshtype:"1"`
	Message  string
	Language string
}

// TestStrangersBeforeTheKey connects to SSH servers that send hostile text
// before plx has verified their host key.
func TestStrangersBeforeTheKey(t *testing.T) {
	t.Parallel()
	b := local(t)
	list := strings.Split(without(","), "-none-")
	good := []string{"aes128-ctr"}
	b.stranger("kex", beforeKey("SSH-2.0-x", kexInit{Kex: list, HostKeys: list, Ciphers: list, CiphersBack: list, MACs: list, MACsBack: list, Compression: list, CompressBack: list}))
	b.stranger("ciphers", beforeKey("SSH-2.0-x", kexInit{Kex: []string{"curve25519-sha256"}, HostKeys: []string{"ssh-ed25519"}, Ciphers: list, CiphersBack: good,
		MACs: []string{"hmac-sha2-256"}, MACsBack: list, Compression: []string{"none"}, CompressBack: []string{"none"}}))
	b.stranger("leaves", beforeKey("SSH-2.0-x", disconnect{2, hostile, hostile}))
	b.stranger("version", beforeKey(hostile+"\r\n"+"SSH-2.0-"+without("\n")[:200]+"\n", disconnect{2, hostile, ""}))
	for _, command := range [][]string{{"launch"}, {"exec"}, {"jobs"}, {"probe"}, {"doctor"}} {
		var args []string
		if command[0] == "launch" || command[0] == "exec" {
			args = []string{"true"}
		}
		for _, host := range []string{"kex", "ciphers", "leaves"} {
			if host != "kex" && command[0] != "exec" {
				continue // all commands connect in the same way
			}
			b.quoted(true, append(append(command, "--host", host), args...)...)
		}
	}
	b.quoted(true, "probe", "--host", "kex", "--json")
	b.quoted(true, "exec", "--host", "kex", "--json", "true")
	b.quoted(true, "exec", "--host", "version", "true")
}

// session handles a command on an untrusted server and returns the command's
// exit status.
type session func(command string, channel ssh.Channel) (status int)

// loggedIn returns a server that accepts every user, and sends a hostile
// banner first.
func loggedIn(run session) func(net.Conn) {
	config := &ssh.ServerConfig{
		BannerCallback:    func(ssh.ConnMetadata) string { return hostile },
		PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil },
	}
	if run == nil {
		config.PublicKeyCallback = func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, errors.New(hostile) }
	}
	config.AddHostKey(hostKey())
	return func(conn net.Conn) {
		_, channels, requests, err := ssh.NewServerConn(conn, config)
		if err != nil {
			return // the client has disconnected
		}
		go ssh.DiscardRequests(requests) // until the connection ends
		var sessions sync.WaitGroup
		defer sessions.Wait()
		for c := range channels {
			if run == nil {
				c.Reject(ssh.Prohibited, hostile)
				continue
			}
			channel, asked, err := c.Accept()
			if err != nil {
				return
			}
			sessions.Go(func() { serveSession(channel, asked, run) })
		}
	}
}

func serveSession(channel ssh.Channel, asked <-chan *ssh.Request, run session) {
	defer channel.Close()
	for request := range asked {
		var exec struct{ Command string }
		is := request.Type == "exec" && ssh.Unmarshal(request.Payload, &exec) == nil
		request.Reply(is, nil) // ignore the error: the client may have disconnected
		if !is {
			continue
		}
		go ssh.DiscardRequests(asked) // until the channel ends
		if status := run(exec.Command, channel); status < 0 {
			channel.SendRequest("exit-signal", false, ssh.Marshal(struct {
				Signal         string
				Core           bool
				Text, Language string
			}{without("\x00"), false, hostile, hostile}))
		} else {
			channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status)}))
		}
		return
	}
}

// sentinel matches the random text that plx expects on both streams of a
// command before its output begins.
var sentinel = regexp.MustCompile(`plx-[A-Z2-7]{26}`)

// says returns a session that prints the given texts to both streams.
func says(stdout, stderr string, status int) session {
	return func(command string, channel ssh.Channel) int {
		begin := sentinel.FindString(command) + "\n"
		io.WriteString(channel, begin+stdout) // ignore the error: the client may have disconnected
		io.WriteString(channel.Stderr(), begin+stderr)
		return status
	}
}

// refuses answers every call to the agent with an error that has a hostile
// text.
func refuses(conn *protocol.Conn, call protocol.Call) {
	_ = conn.Send(protocol.Message{Reply: &protocol.Reply{ID: call.ID, Err: &protocol.Failure{Text: hostile, Hint: hostile}}}) // ignore the error: the client may have disconnected
}

// prints answers calls like an agent whose command prints to both streams and
// exits with status 3.
func prints(conn *protocol.Conn, call protocol.Call) {
	switch call.Do {
	case protocol.DoExec:
	case protocol.DoSurvey:
		var asked protocol.Survey
		err := json.Unmarshal(call.In, &asked)
		out, encoded := json.Marshal(protocol.Surveyed{Has: slices.Collect(maps.Keys(asked.Blobs)),
			Facts: json.RawMessage(`{"os":"linux","arch":"amd64","fsid":"0123456789abcdef0123456789abcdef"}`)})
		if errors.Join(err, encoded) == nil {
			_ = conn.Send(protocol.Message{Reply: &protocol.Reply{ID: call.ID, Out: out}}) // as below
		}
		return
	default:
		refuses(conn, call)
		return
	}
	for stream := range 4 { // there are two
		_ = conn.Send(protocol.Message{Piece: &protocol.Piece{ID: call.ID, Stream: stream, Data: []byte(hostile)}}) // as above
	}
	_ = conn.Send(protocol.Message{Reply: &protocol.Reply{ID: call.ID, Out: []byte(`{"status":3}`)}}) // as above
}

// agent is an untrusted agent, which answers calls in its own way.
type agent func(*protocol.Conn, protocol.Call)

func (a agent) serve(command string, channel ssh.Channel) int {
	io.WriteString(channel, sentinel.FindString(command)+"\n") // ignore the error: the client may have disconnected
	_ = bootstraptest.Runs(command, channel)                   // as above
	conn, err := protocol.OpenCalls(channel)
	if err != nil {
		return 1
	}
	for {
		m, err := conn.Receive()
		if err != nil {
			return 0
		}
		if m.Call != nil {
			a(conn, *m.Call)
		}
	}
}

// shell returns a session that runs commands on this machine, in the home
// directory home. Commands that match mean are passed to answer instead.
func shell(home string, mean *regexp.Regexp, answer session) session {
	return func(command string, channel ssh.Channel) int {
		if mean != nil && mean.MatchString(command) {
			return answer(command, channel)
		}
		cmd := exec.Command("/bin/bash", "-c", command)
		cmd.Dir, cmd.Env = home, append(environ(), "HOME="+home, "SSH_CONNECTION=127.0.0.1 1 127.0.0.1 2")
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = channel, channel.Stderr(), patience.Limit
		in, err := cmd.StdinPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return 126
		}
		go func() { io.Copy(in, channel); in.Close() }() // until the channel ends
		cmd.Wait()                                       // ignore the error: cmd.ProcessState has the exit status
		return exitCode(cmd.ProcessState)
	}
}

// TestStrangersOnHosts runs commands of plx on untrusted hosts that accept its
// login.
func TestStrangersOnHosts(t *testing.T) {
	t.Parallel()
	b := local(t)
	b.stranger("refuses", loggedIn(nil))
	b.stranger("fails", loggedIn(says(hostile, hostile, 3)))
	b.stranger("dies", loggedIn(says(hostile, hostile, -1)))
	b.stranger("works", loggedIn(says(hostile, hostile, 0)))
	b.stranger("noisy", loggedIn(func(_ string, channel ssh.Channel) int {
		io.WriteString(channel, hostile)
		return 1
	}))
	for _, x := range []struct {
		shown bool
		args  []string
	}{
		{false, []string{"exec", "--host", "refuses", "true"}},
		{true, []string{"launch", "--host", "fails", "true"}},
		{true, []string{"exec", "--host", "fails", "true"}},
		{true, []string{"exec", "--host", "dies", "true"}},
		{true, []string{"exec", "--host", "works", "true"}},
		{true, []string{"exec", "--host", "noisy", "true"}},
		{true, []string{"probe", "--host", "fails"}},
		{true, []string{"probe", "--host", "fails", "--json"}},
		{true, []string{"doctor", "--host", "fails"}},
		{true, []string{"doctor", "--host", "fails", "--json"}},
		{true, []string{"jobs", "--host", "works"}},
		{false, []string{"jobs", "--host", "fails"}},
	} {
		b.quoted(x.shown, x.args...)
	}
}

// On a terminal, plx passes the questions of an SSH server to the user.
func TestStrangersQuestions(t *testing.T) {
	t.Parallel()
	b := local(t)
	config := &ssh.ServerConfig{KeyboardInteractiveCallback: func(_ ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
		_, err := ask(hostile, hostile, []string{hostile}, []bool{true})
		return nil, errors.Join(err, errors.New(hostile))
	}}
	config.AddHostKey(hostKey())
	b.stranger("asks", func(conn net.Conn) { ssh.NewServerConn(conn, config) }) // ignore the error: the client reports how the login ended
	answered := func(seen string, terminal io.Writer) bool {
		asked := strings.Contains(seen, "END: ")
		if asked {
			terminal.Write([]byte{3}) // ignore the error: if this write fails, the test times out
		}
		return asked
	}
	harmless(t, "a question", onTerminal(b, 125, answered, "exec", "--host", "asks", "true"), true)
}

// TestStrangersAsAgents launches jobs on a host whose agent is an untrusted
// program, and runs commands on these jobs. Each case gives a hostile answer
// to one call.
func TestStrangersAsAgents(t *testing.T) {
	t.Parallel()
	b := local(t)
	home := t.TempDir()
	for _, command := range []string{"start", "logs"} {
		b.stranger(command, loggedIn(shell(home, regexp.MustCompile(`agent `+command+`\b`), says("", hostile, 1))))
	}
	b.stranger("prints", loggedIn(shell(home, regexp.MustCompile(`agent start\b`), agent(prints).serve)))
	b.stranger("garbage", loggedIn(shell(home, regexp.MustCompile(`agent start\b`), says(hostile, hostile, 0))))
	b.stranger("refuses", loggedIn(shell(home, regexp.MustCompile(`agent start\b`), agent(refuses).serve)))
	b.stranger("honest", loggedIn(shell(home, nil, nil)))
	launch := func(host string, more ...string) []string {
		return append(append([]string{"launch", "--host", host + ": cpu addr=127.0.0.1", "--ps", "none"}, more...), "true")
	}
	b.want(0, launch("honest", "--name", "made")...)
	for _, args := range [][]string{
		launch("start"), launch("garbage"), launch("refuses", "--workdir", b.t.TempDir(), "--setup", "true"), launch("refuses", "--name", "x"),
		{"doctor", "--host", "refuses"},
	} {
		b.quoted(true, args...)
	}
	harmlessBytes(t, "plx exec on a terminal", onTerminal(b, 3, nil, "exec", "--host", "prints", "true"), true)
	harmless(t, "plx exec --stream on a terminal", onTerminal(b, 3, nil, "exec", "--stream", "--host", "prints", "true"), true)

	job := b.id("made")
	for _, x := range []struct {
		host string // whose agent lies
		args []string
	}{
		{"logs", []string{"logs", job}},
		{"refuses", []string{"fetch", job, t.TempDir()}},
		{"refuses", []string{"status", job}}, {"refuses", []string{"stacks", job}}, {"refuses", []string{"stop", job}}, {"refuses", []string{"attach", job}},
		{"refuses", []string{"jobs"}},
		{"refuses", []string{"jobs", "--json"}},
		{"refuses", []string{"prune", "--older", "1ns"}},
	} {
		b.changeRecord(filepath.Join(b.home, ".plx", "jobs", job, "job.json"), func(record map[string]any) {
			record["hosts"].([]any)[0].(map[string]any)["line"] = x.host + ": cpu addr=127.0.0.1"
			delete(record, "verdict") // the host knows it
		})
		b.quoted(true, x.args...)
	}
}

// changeRecord changes the record of a job in a JSON file.
func (b *bench) changeRecord(path string, change func(map[string]any)) {
	b.t.Helper()
	var record map[string]any
	err := json.Unmarshal(read(b.t, path), &record)
	if err == nil {
		change(record)
		var text []byte
		if text, err = json.Marshal(record); err == nil {
			err = os.WriteFile(path, text, 0o600)
		}
	}
	if err != nil {
		b.t.Fatal(err)
	}
}

// TestStrangersRecords runs commands on jobs whose records contain hostile
// text, on this machine and on a host.
func TestStrangersRecords(t *testing.T) {
	t.Parallel()
	b := local(t)
	home := t.TempDir()
	b.stranger("honest", loggedIn(shell(home, nil, nil)))
	b.want(3, "launch", "--host", "honest: cpu addr=127.0.0.1", "--ps", "none", "--name", "made", b.script("s", "echo bad >&2; exit 3"))
	job := b.id("made")
	lying := func(verdict map[string]any) {
		for _, name := range []string{"reason", "culprit", "host"} {
			verdict[name] = hostile
		}
		verdict["victims"], verdict["notices"] = []string{hostile}, []string{hostile}
		verdict["ends"] = []any{map[string]any{"task": hostile, "host": hostile, "part": hostile, "cause": hostile}}
		verdict["hang"] = map[string]any{"culprit": hostile, "host": hostile, "why": hostile, "waits": []string{hostile}, "file": hostile}
		verdict["first"].(map[string]any)["tail"] = hostile
	}
	b.changeRecord(filepath.Join(b.home, ".plx", "jobs", job, "job.json"), func(record map[string]any) {
		record["name"], record["program"], record["plan"] = hostile, hostile, []string{hostile}
		lying(record["verdict"].(map[string]any))
	})
	states, err := filepath.Glob(filepath.Join(home, ".plx", "jobs", job, "*", "state.json"))
	if err != nil || len(states) != 1 {
		t.Fatalf("%q, %v", states, err)
	}
	b.changeRecord(states[0], func(state map[string]any) {
		state["name"] = hostile
		lying(state["verdict"].(map[string]any))
	})
	for _, args := range [][]string{{"jobs"}, {"jobs", "--json"}, {"status", job}, {"status", job, "--json"}, {"attach", job}, {"stop", job}, {"logs", "-v", job}, {"scale", job, "--host", "honest"}} {
		b.quoted(true, args...)
	}
	harmless(t, "plx status on a terminal", onTerminal(b, 0, nil, "status", job), true)
	stacks := filepath.Join(filepath.Dir(states[0]), "stacks")
	if err := errors.Join(os.MkdirAll(stacks, 0o700), os.WriteFile(filepath.Join(stacks, "x.txt"), []byte("worker:0, 2026-11-30T18:00:00Z\n  at "+hostile), 0o600)); err != nil {
		t.Fatal(err)
	}
	harmlessBytes(t, "plx stacks", b.want(0, "stacks", job).stdout, false)
	seen := b.want(0, "stacks", "--full", job).stdout
	harmlessBytes(t, "plx stacks --full", seen, false)
	contains(t, seen, "BEGIN", "END")
	b.quoted(true, "__complete", "logs", "")

	b.home = t.TempDir() // as on another machine, which has no record of the job
	b.stranger("honest", loggedIn(shell(home, nil, nil)))
	for _, args := range [][]string{{"jobs", "--host", "honest"}, {"jobs", "--host", "honest", "--json"}, {"status", job, "--host", "honest"}} {
		b.quoted(true, args...)
	}
}

// TestStrangersBehindVia connects to hosts by --via commands that print
// hostile text.
func TestStrangersBehindVia(t *testing.T) {
	t.Parallel()
	b := local(t)
	said := filepath.Join(t.TempDir(), "said")
	garbage := make([]byte, 4<<10)
	rand.Read(garbage) // it never fails
	if err := errors.Join(os.WriteFile(said, []byte(hostile), 0o600), os.WriteFile(said+".bin", garbage, 0o600)); err != nil {
		t.Fatal(err)
	}
	tells := b.script("tells", "cat "+said+" >&2; exit 3\n") + " {host}"
	prints := b.script("prints", "cat "+said+"; exit 3\n") + " {host}"
	binary := b.script("binary", "cat "+said+".bin >&2; exit 3\n") + " {host}"
	for _, via := range []string{tells, prints} {
		b.quoted(true, "exec", "--host", "h", "--via", via, "true")
		b.quoted(true, "jobs", "--host", "h", "--via", via)
		b.quoted(true, "launch", "--host", "h: cpu addr=127.0.0.1", "--via", via, "true")
	}
	b.quoted(true, "probe", "--host", "h", "--via", tells)
	b.quoted(true, "doctor", "--host", "h", "--via", tells)
	b.quoted(false, "exec", "--host", "h", "--via", binary, "true")
	b.quoted(true, "exec", "--host", "h", "--via", without("\x00"), "true") // the command itself
}

// TestStrangersNames gives files, variables and jobs hostile names.
func TestStrangersNames(t *testing.T) {
	t.Parallel()
	b := local(t)
	name, word := without("\x00/"), without("\x00")
	name = name[:200] // most file systems do not allow longer names
	b.dir = t.TempDir()
	program := filepath.Join(b.dir, name)
	folder := filepath.Join(b.dir, "work", "f"+name)
	list := filepath.Join(b.dir, "hosts"+name)
	if err := errors.Join(executable.Write(program, []byte("#!/bin/sh\n"), 0o755), os.MkdirAll(folder, 0o755), os.WriteFile(list, []byte(word), 0o600),
		os.Symlink("/"+name, filepath.Join(folder, "link"))); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		shown bool
		args  []string
	}{
		{true, []string{"launch", "--local", "1x1", "--dry-run", program}},
		{true, []string{"launch", "--local", "1x1", program, "--fetch"}},
		{true, []string{"launch", "--local", "1x1", program + "x"}},
		{true, []string{"launch", "--local", "1x1", "--workdir", filepath.Join(b.dir, "work"), "true"}},
		{true, []string{"launch", "--local", "1x1", "--workdir", folder + "x", "true"}},
		{true, []string{"launch", "--local", word, "true"}},
		{true, []string{"launch", "--local", "1x1", "--env", word, "true"}},
		{true, []string{"launch", "--local", "1x1", "--output", "/" + word, "true"}},
		{true, []string{"launch", "--local", "1x1", "--name", word, "true"}},
		{true, []string{"exec", "--hosts", list, "true"}},
		{true, []string{"exec", "--hosts", list + "x", "true"}},
		{true, []string{"logs", word}}, {true, []string{"status", word}}, {true, []string{"stacks", word}}, {true, []string{"attach", word}},
		{true, []string{"stop", word}}, {true, []string{"fetch", word, "d"}}, {true, []string{"scale", "--hosts", list, "job"}},
		{true, []string{"prune", "--older", word}},
		{true, []string{"help", word}},
		{true, []string{word}},
	} {
		b.quoted(x.shown, x.args...)
	}
	makes := b.script("makes", `echo made > "$1"`)
	b.quoted(true, "launch", "--local", "1x1", "--fetch", filepath.Join(b.dir, "fetched"), makes, name)
	b.env = []string{"PLX_HOSTS=" + word}
	b.quoted(true, "config")
	b.quoted(true, "config", "--json")
	b.quoted(true, "probe")
	b.env = []string{"PLX_CONFIG=" + list}
	b.quoted(true, "config")
}
