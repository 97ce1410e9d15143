// One flow over a chain of point-to-point links in ns-3, as the scenarios beside this file have it:
//
//   terminal -- access -- router -- middle -- router -- access -- terminal
//
// Prints goodput, packet-hops, wall time and processor time as one line of JSON. A packet-hop is a
// packet, data or acknowledgement, that a device received; times are those of Simulator::Run alone.

#include <chrono>
#include <cstdint>
#include <ctime>
#include <iostream>
#include <map>
#include <string>

#include <ns3/applications-module.h>
#include <ns3/core-module.h>
#include <ns3/internet-module.h>
#include <ns3/network-module.h>
#include <ns3/point-to-point-module.h>

using namespace ns3;

namespace
{

const std::map<std::string, std::string> CONTROLS = {
    {"newreno", "ns3::TcpNewReno"},
    {"cubic", "ns3::TcpCubic"},
    {"westwood_plus", "ns3::TcpWestwood"},
    {"bbr", "ns3::TcpBbr"},
};

const uint16_t PORT = 9;

// Sizes of payload that with their headers fill the MTU of 1500 bytes. TCP's holds room for time
// stamps: ns-3 does not take options off the segment size, and would fragment.
const uint32_t SEGMENT = 1448;
const uint32_t DATAGRAM = 1472;

uint64_t packet_hops = 0;

void
OnReceived(Ptr<const Packet>)
{
    packet_hops++;
}

struct Link
{
    std::string rate;
    std::string delay;
    double loss;
};

void
ConfigureTcp(const std::string& control, bool sack)
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType",
                       TypeIdValue(TypeId::LookupByName(CONTROLS.at(control))));
    Config::SetDefault("ns3::TcpWestwood::ProtocolType", EnumValue(TcpWestwood::WESTWOODPLUS));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(SEGMENT));
    Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(10));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(2));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(200)));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(8 << 20));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(8 << 20));
    Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::WindowScaling", BooleanValue(true));
    Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(sack));
}

void
Lose(Ptr<NetDevice> device, double probability)
{
    auto losses = CreateObject<RateErrorModel>();
    losses->SetUnit(RateErrorModel::ERROR_UNIT_PACKET);
    losses->SetRate(probability);
    device->SetAttribute("ReceiveErrorModel", PointerValue(losses));
}

// Joins two nodes by a link with its own subnet. Returns the address of the second.
Ipv4Address
Join(Ptr<Node> left, Ptr<Node> right, const Link& link, Ipv4AddressHelper& subnets)
{
    PointToPointHelper wire;
    wire.DisableFlowControl(); // The queue of the device is the only one.
    wire.SetDeviceAttribute("DataRate", StringValue(link.rate));
    wire.SetChannelAttribute("Delay", StringValue(link.delay));
    wire.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1000p"));
    const NetDeviceContainer devices = wire.Install(left, right);
    for (auto device = devices.Begin(); device != devices.End(); ++device)
    {
        (*device)->TraceConnectWithoutContext("MacRx", MakeCallback(&OnReceived));
        if (link.loss > 0)
        {
            Lose(*device, link.loss);
        }
    }
    const Ipv4InterfaceContainer addresses = subnets.Assign(devices);
    subnets.NewNetwork();
    return addresses.GetAddress(1);
}

void
SendTcp(Ptr<Node> from, const InetSocketAddress& to)
{
    BulkSendHelper source("ns3::TcpSocketFactory", to);
    source.Install(from);
}

void
SendUdp(Ptr<Node> from, const InetSocketAddress& to)
{
    OnOffHelper source("ns3::UdpSocketFactory", to);
    source.SetConstantRate(DataRate("10Mbps"), DATAGRAM);
    source.Install(from);
}

} // namespace

int
main(int argc, char* argv[])
{
    std::string transport = "newreno";
    uint32_t hops = 3;
    Link access{"500Mbps", "10ms", 0};
    Link middle{"20Mbps", "275ms", 1e-4};
    bool sack = true;
    double duration = 480;

    CommandLine options(__FILE__);
    options.AddValue("transport", "newreno, cubic, westwood_plus, bbr or udp", transport);
    options.AddValue("hops", "1 (the middle link alone) or 3", hops);
    options.AddValue("rate", "Rate of the middle link", middle.rate);
    options.AddValue("delay", "One-way delay of the middle link", middle.delay);
    options.AddValue("loss", "Share of packets that the middle link loses", middle.loss);
    options.AddValue("sack", "Selective acknowledgements", sack);
    options.AddValue("duration", "Simulated time in seconds", duration);
    options.Parse(argc, argv);

    const bool udp = transport == "udp";
    if ((!udp && CONTROLS.count(transport) == 0) || (hops != 1 && hops != 3))
    {
        std::cerr << "unknown transport or number of hops\n";
        return 2;
    }
    if (!udp)
    {
        ConfigureTcp(transport, sack);
    }

    NodeContainer nodes(hops + 1);
    InternetStackHelper internet;
    internet.Install(nodes);
    Ipv4AddressHelper subnets("10.0.0.0", "255.255.255.0");
    Ipv4Address receiver;
    for (uint32_t hop = 0; hop < hops; hop++)
    {
        const bool is_middle = hop == hops / 2;
        receiver = Join(nodes.Get(hop), nodes.Get(hop + 1), is_middle ? middle : access, subnets);
    }
    Ipv4GlobalRoutingHelper::PopulateRoutingTables();

    const std::string factory = udp ? "ns3::UdpSocketFactory" : "ns3::TcpSocketFactory";
    PacketSinkHelper sink(factory, InetSocketAddress(Ipv4Address::GetAny(), PORT));
    const auto application = sink.Install(nodes.Get(hops)).Get(0);
    (udp ? SendUdp : SendTcp)(nodes.Get(0), InetSocketAddress(receiver, PORT));

    Simulator::Stop(Seconds(duration));
    const auto start = std::chrono::steady_clock::now();
    const std::clock_t begun = std::clock();
    Simulator::Run();
    const double cpu = static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC;
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    const uint64_t bytes = DynamicCast<PacketSink>(application)->GetTotalRx();
    Simulator::Destroy();

    std::cout << "{\"goodput_mbps\": " << bytes * 8 / duration / 1e6
              << ", \"packet_hops\": " << packet_hops << ", \"wall_s\": " << wall.count()
              << ", \"cpu_s\": " << cpu << "}\n";
    return 0;
}
