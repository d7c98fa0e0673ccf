package provision

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// FindAddresses determines the data address of each host: the address to which
// tasks on other hosts connect. If the host's line in the resource file or
// --nic names a network interface, the data address is one of that interface.
// If neither names one, it is the address in the line or, if the line has
// none, the address that SSH connects to.
//
// If an interface has several addresses, FindAddresses prefers a network in
// which all hosts and r.PeerAddr have an address. If there is no such network,
// it takes the address that SSH connects to, or else the first IPv4 address.
// It takes IPv6 addresses if r.PeerAddr is one, or if a host has no other.
func (r *Recipe) FindAddresses(ctx context.Context, on []*Target) error {
	all := make([]addresses, len(on))
	tally := r.Printer.NewHostProgress("looking for data addresses", len(on))
	_ = each(ctx, on, tally, func(i int, t *Target) (err error) { // ignore the result: each target has its error
		if all[i], err = addressesOf(ctx, t.AgentHost); err == nil && all[i].loopback && len(on) > 1 && !t.Embedded {
			err = fmt.Errorf("network interface %s reaches this host only, and the job has others", t.Resource.Interface)
		}
		if err != nil && t.Resource.Interface != "" {
			err = fmt.Errorf("%s: %w", cmp.Or(t.InterfaceBy, "--nic"), err)
		}
		return err
	})
	var good []*Target
	var found []addresses
	for i, t := range on {
		if t.Err == nil {
			good, found = append(good, t), append(found, all[i])
		}
	}
	like, _ := netip.ParseAddr(r.PeerAddr) // the error is ignored: if r.PeerAddr is no address, like is the zero Addr, which is not IPv6
	six := like.Unmap().Is6() || slices.ContainsFunc(found, func(f addresses) bool { return len(f.four) == 0 && len(f.six) > 0 })
	network := common(found, six, r.PeerAddr)
	for i, t := range good {
		if t.Resource.Interface != "" {
			t.ChosenAddr = found[i].choose(six, network)
		}
	}
	return joinSome(on)
}

// joinSome joins the errors of at most three hosts and gives the number of
// further ones. A wrong --nic fails on every host, so all errors would be too
// many.
func joinSome(on []*Target) error {
	const most = 3
	var named []error
	for _, t := range on {
		if t.Err != nil {
			named = append(named, t.Named(t.Err))
		}
	}
	if more := len(named) - most; more > 0 {
		named = append(named[:most], fmt.Errorf("and %d more hosts without a data address", more))
	}
	return errors.Join(named...)
}

// addresses are the possible data addresses of a host, in order of preference.
// Each is a prefix: an address with the prefix length of its network. If the
// network is unknown, the prefix length is that of the whole address.
type addresses struct {
	four, six []netip.Prefix // IPv4 and IPv6 addresses
	loopback  bool           // true if the addresses belong to the loopback interface, so that other hosts cannot connect to them
}

// of returns the addresses of one IP version. These are the IPv6 addresses if
// six is true or a has no IPv4 address, and the IPv4 addresses in all other
// cases. If a has no IPv6 address, of always returns the IPv4 addresses.
func (a addresses) of(six bool) []netip.Prefix {
	if len(a.six) > 0 && (six || len(a.four) == 0) {
		return a.six
	}
	return a.four
}

// choose returns the first address in the given network. If no address is in
// the network, it returns the first of all addresses, or "" if there is none.
func (a addresses) choose(six bool, network netip.Prefix) string {
	all := a.of(six)
	if len(all) == 0 {
		return ""
	}
	if i := within(all, network); i >= 0 {
		return all[i].Addr().String()
	}
	return all[0].Addr().String()
}

// within returns the index of the first address that is in the given network.
// It returns -1 if no address is.
func within(all []netip.Prefix, network netip.Prefix) int {
	return slices.IndexFunc(all, func(p netip.Prefix) bool { return network.Contains(p.Addr()) })
}

// common returns a network in which every host has an address. If like is not
// empty, the network must also contain the address like. common returns the
// zero Prefix if there is no such network, or if no host has more than one
// address.
func common(found []addresses, six bool, like string) netip.Prefix {
	choice := slices.IndexFunc(found, func(f addresses) bool { return len(f.of(six)) > 1 })
	if choice < 0 {
		return netip.Prefix{}
	}
	known, err := netip.ParseAddr(like)
	for _, network := range found[choice].of(six) {
		lacks := func(f addresses) bool { return within(f.of(six), network) < 0 }
		if (err != nil || network.Contains(known)) && !slices.ContainsFunc(found, lacks) {
			return network.Masked()
		}
	}
	return netip.Prefix{}
}

// add appends the address p unless a already has it.
func (a *addresses) add(p netip.Prefix) {
	to := &a.four
	if p.Addr().Is6() {
		to = &a.six
	}
	if within(*to, netip.PrefixFrom(p.Addr(), p.Addr().BitLen())) < 0 {
		*to = append(*to, p)
	}
}

// addressesOf returns the possible data addresses of a host. If the host's
// line names a network interface, these are the interface's addresses, which
// the host's agent reports. If the line names no interface, there is exactly
// one address.
func addressesOf(ctx context.Context, a *hosts.AgentHost) (found addresses, err error) {
	if a.Resource.Interface == "" {
		text, err := a.DataAddr()
		// Add the address only if it is valid. If it is not, the agent reports
		// that later.
		if ip, failed := netip.ParseAddr(text); err == nil && failed == nil {
			found.add(alone(ip))
		}
		return found, err
	}
	links, err := hosts.Call[[]protocol.Interface](ctx, a, hosts.AnswerTime, protocol.DoInterfaces, struct{}{})
	if err != nil {
		return found, fmt.Errorf("list network interfaces: %w", err)
	}
	return onInterface(links, a.Resource.Interface, a.Resource.DataAddr, a.Facts.ServerAddr)
}

// onInterface returns those addresses of the interface called name that other
// hosts can dial. server is the address that SSH connects to; if the interface
// has it, it comes first. If wanted is not empty, it is the only address that
// onInterface may return.
func onInterface(links []protocol.Interface, name, wanted, server string) (found addresses, err error) {
	i := slices.IndexFunc(links, func(l protocol.Interface) bool { return l.Name == name })
	if i < 0 {
		return found, exit.WithHint(fmt.Errorf("no network interface %s: the host has %s", name, describe(links)),
			"--nic NAME names the interface of all hosts, nic=NAME on a line of the resource file that of one")
	}
	link := links[i]
	switch {
	case !link.Up:
		return found, fmt.Errorf("network interface %s is down: the host has %s", name, describe(links))
	case !link.Running:
		return found, fmt.Errorf("network interface %s has no carrier (is its cable plugged in?): the host has %s", name, describe(links))
	}
	found = addresses{loopback: link.Loopback}
	if ip, err := netip.ParseAddr(wanted); err == nil {
		if !owns(link, ip) {
			return found, fmt.Errorf("addr=%s is no address of its network interface: the host has %s", wanted, describe(links))
		}
		found.add(alone(ip))
		return found, nil
	}
	all := dialable(link)
	if preferred, err := netip.ParseAddr(server); err == nil && owns(link, preferred.Unmap()) {
		found.add(inNetwork(all, preferred.Unmap()))
	}
	for _, p := range all {
		found.add(p)
	}
	if len(found.of(false)) == 0 {
		return found, fmt.Errorf("network interface %s has no address that other hosts can dial: the host has %s", name, describe(links))
	}
	return found, nil
}

// alone returns ip with the prefix length of the whole address, which means
// that the network is unknown.
func alone(ip netip.Addr) netip.Prefix { return netip.PrefixFrom(ip.Unmap(), ip.Unmap().BitLen()) }

// inNetwork returns ip with the length of the first prefix in the list that
// contains ip.
func inNetwork(all []netip.Prefix, ip netip.Addr) netip.Prefix {
	for _, p := range all {
		if p.Contains(ip) {
			return netip.PrefixFrom(ip, p.Bits())
		}
	}
	return alone(ip)
}

// owns reports whether a network interface accepts packets for the address ip.
// The loopback interface accepts packets for all addresses of its network.
func owns(link protocol.Interface, ip netip.Addr) bool {
	return slices.ContainsFunc(link.Addrs, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && (p.Addr().Unmap() == ip || link.Loopback && p.Contains(ip))
	})
}

// dialable returns the addresses of an interface that other hosts can dial. It
// omits link-local IPv6 addresses, which are valid only together with the name
// of an interface.
func dialable(link protocol.Interface) (all []netip.Prefix) {
	for _, text := range link.Addrs {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().Is6() && p.Addr().IsLinkLocalUnicast() {
			continue
		}
		if p.Addr().Is4In6() {
			p = alone(p.Addr())
		}
		all = append(all, p)
	}
	return all
}

// describe lists the network interfaces that have an address, the loopback
// interface last. For interfaces without an address, it only gives their
// number, because a host with containers has many of them.
func describe(links []protocol.Interface) string {
	var texts, last []string
	others := 0
	for _, l := range links {
		about := []string{}
		for _, p := range dialable(l) {
			about = append(about, p.Addr().String())
		}
		switch {
		case len(about) == 0:
			others++
			continue
		case !l.Up:
			about = append(about, "down")
		case !l.Running:
			about = append(about, "no carrier")
		}
		text := fmt.Sprintf("%s (%s)", l.Name, strings.Join(about, ", "))
		if l.Loopback {
			last = append(last, text)
		} else {
			texts = append(texts, text)
		}
	}
	texts = append(texts, last...)
	if others > 0 {
		texts = append(texts, fmt.Sprintf("%d without an address", others))
	}
	return strings.Join(texts, ", ")
}

// checkReach returns an error if a host's data address is a loopback address,
// such as that of localhost, and the job has other hosts. Tasks on the other
// hosts would connect to their own host instead.
func (r *Recipe) checkReach(_ context.Context, on []*Target) error {
	var inner *Target
	elsewhere := ""
	if ip, err := netip.ParseAddr(r.PeerAddr); err == nil && !ip.IsLoopback() {
		elsewhere = r.PeerAddr
	}
	for _, t := range on {
		addr, _ := t.DataAddr() // ignore the error: FindAddresses has reported hosts without an address
		ip, err := netip.ParseAddr(addr)
		switch {
		case err != nil || t.Embedded:
		case ip.IsLoopback():
			inner = t
		default:
			elsewhere = addr
		}
	}
	if inner == nil || elsewhere == "" {
		return nil
	}
	addr, _ := inner.DataAddr()
	line := inner.Resource.WithoutSettings()
	line.DataAddr = cmp.Or(inner.Facts.ServerAddr, "IP")
	// SSH connects to the host by a loopback address, so the host is this
	// machine. Suggest an address of this machine for the host's line in the
	// resource file.
	if ip, err := netip.ParseAddr(line.DataAddr); err != nil || ip.IsLoopback() {
		line.DataAddr = cmp.Or(ownAddress(elsewhere), "IP")
	}
	return errLoopback(addr, line)
}

// errLoopback returns the error for a host whose data address is a loopback
// address. line is a correct line for the resource file, shown in the hint.
func errLoopback(addr string, line hostfile.Host) error {
	return exit.Mistake(fmt.Errorf("host %s: its data address %s reaches this host only, and the job has others", line.Name, addr),
		"write the address that the others reach: %q", line.String())
}

// CheckReachOffline makes the check of checkReach without connecting to the
// hosts. It sees only the addresses that the lines in the resource file show.
func CheckReachOffline(used []hostfile.Host) error {
	inner, addr := -1, ""
	elsewhere := false
	for i, h := range used {
		written := cmp.Or(h.DataAddr, h.Name)
		ip, err := netip.ParseAddr(written)
		switch {
		case h.Interface != "":
			elsewhere = true
		case written == "localhost" || err == nil && ip.IsLoopback():
			inner, addr = i, written
		default:
			elsewhere = true
		}
	}
	if inner < 0 || !elsewhere {
		return nil
	}
	line := used[inner].WithoutSettings()
	line.DataAddr = "IP"
	return errLoopback(addr, line)
}

// ownAddress returns this machine's own address on the route to the given
// address. It returns "" if it cannot find out. It sends no packet.
func ownAddress(of string) string {
	conn, err := net.Dial("udp", net.JoinHostPort(of, "9"))
	if err != nil {
		return ""
	}
	defer conn.Close() // the error is ignored: connecting a UDP socket sends no packet, so nothing can be lost
	own, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok || own.IP.IsLoopback() {
		return ""
	}
	return own.IP.String()
}
