package protocol

// Interface is a network interface of a host.
type Interface struct {
	Name     string   `json:"name"`
	Up       bool     `json:"up"`       // switched on
	Running  bool     `json:"running"`  // has a carrier: its cable is plugged in
	Loopback bool     `json:"loopback"` // reaches this host only
	MTU      int      `json:"mtu"`      // largest packet in bytes
	Speed    int      `json:"speed"`    // of its hardware in Mbit/s; 0: not known, or it has none
	Addrs    []string `json:"addrs"`    // addresses with the lengths of their prefixes, such as 10.0.0.1/24
}
