//! Fair queueing of a class among its sources.
//!
//! Each component of each client has a queue. Clients are served in turn by bytes (deficit round robin, as in
//! RFC 8290 §4.2), and the components of a client message by message, so that a source that sends a thousand
//! times as much as others delays only itself. A full queue refuses new messages of its source; if all queues
//! together are full, the client with the most loses its newest. A queue is full by its bytes: ten small messages
//! have the place of a large one.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use skybraid_units::invariant::Promised;

/// Maximum number of clients, and of components of a client, with queues of their own; further ones share
/// the last.
const MAX_CLIENTS: usize = 64;
const MAX_COMPONENTS: usize = 32;
/// Bytes that a client may send per turn.
const QUANTUM: i64 = 300;
/// Extra cost per message in bytes: headers, seals, system calls.
const OVERHEAD: i64 = 100;
/// Capacity of all queues together, in queues.
const QUEUES: i64 = 8;
/// Cost of a full message, and maximum number of small ones in its place.
const FULL: i64 = 1_500;
const MAX_SMALL: usize = 10;

/// Queue of messages of type `T`, by client `C` and component `S`.
#[derive(Debug)]
pub struct FairQueue<C, S, T> {
    /// Clients with queued messages, next to be served first.
    clients: VecDeque<Client<C, S, T>>,
    len: usize,
    /// Cost of all queued messages.
    cost: i64,
    max_queue: usize,
    /// Empty queues of the client and component served last, for reuse.
    spare_components: VecDeque<Component<S, T>>,
    spare_items: VecDeque<Item<T>>,
}

#[derive(Debug)]
struct Client<C, S, T> {
    name: C,
    deficit: i64,
    cost: i64,
    /// Components with queued messages, next to be served first.
    components: VecDeque<Component<S, T>>,
}

#[derive(Debug)]
struct Component<S, T> {
    name: S,
    items: VecDeque<Item<T>>,
    cost: i64,
    /// Number of the first item.
    first: u64,
    /// Kinds of the items, each with the item's number.
    kinds: Vec<(u32, u64)>,
}

#[derive(Debug)]
struct Item<T> {
    value: T,
    cost: i64,
    kind: Option<u32>,
}

/// Message dropped by a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displaced<C, S, T> {
    /// Queue full.
    Refused(C, S, T),
    /// Replaced by a newer message of the same kind.
    Superseded(T),
}

impl<C: Copy + PartialEq, S: Copy + PartialEq, T> FairQueue<C, S, T> {
    /// Creates an empty queue for up to `max_queue` full messages per source, at least one.
    pub const fn new(max_queue: usize) -> Self {
        let max_queue = if max_queue == 0 { 1 } else { max_queue };
        Self {
            clients: VecDeque::new(),
            len: 0,
            cost: 0,
            max_queue,
            spare_components: VecDeque::new(),
            spare_items: VecDeque::new(),
        }
    }

    /// Returns the number of queued messages.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether nothing is queued.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a message of `bytes` bytes; [`take_excess`](Self::take_excess) must follow. A message with a `kind`
    /// replaces a queued one of the same kind.
    pub fn push(
        &mut self,
        client: C,
        component: S,
        bytes: usize,
        kind: Option<u32>,
        value: T,
    ) -> Option<Displaced<C, S, T>> {
        let place = self.place(client);
        let max_queue = self.max_queue;
        let Some(owner) = self.clients.get_mut(place).promised("a queue of the client") else {
            return Some(Displaced::Refused(client, component, value));
        };
        let place = owner.place(component, &mut self.spare_items);
        let Some(queue) = owner.components.get_mut(place).promised("a queue of the component")
        else {
            return Some(Displaced::Refused(client, component, value));
        };
        let cost = bytes as i64 + OVERHEAD;
        if let Some(item) = kind.and_then(|kind| queue.of_kind(kind)) {
            let older = core::mem::replace(item, Item { value, cost, kind });
            let more = cost - older.cost;
            queue.cost += more;
            owner.cost += more;
            self.cost += more;
            return Some(Displaced::Superseded(older.value));
        }
        let max_cost = FULL * max_queue as i64;
        if queue.cost >= max_cost || queue.items.len() >= MAX_SMALL * max_queue {
            return Some(Displaced::Refused(client, component, value));
        }
        queue.push(Item { value, cost, kind });
        owner.cost += cost;
        self.len += 1;
        self.cost += cost;
        None
    }

    /// Drops the newest message in the longest queue of the client with the most while all queues together hold too
    /// much.
    pub fn take_excess(&mut self) -> Option<Displaced<C, S, T>> {
        let max_cost = QUEUES * FULL * self.max_queue as i64;
        if self.cost > max_cost { self.drop_newest() } else { None }
    }

    /// Returns the index of a client's queue, which is added if missing.
    fn place(&mut self, name: C) -> usize {
        let known = self.clients.iter().position(|client| client.name == name);
        known.unwrap_or_else(|| {
            if self.clients.len() < MAX_CLIENTS {
                let components = core::mem::take(&mut self.spare_components);
                self.clients.push_back(Client { name, deficit: QUANTUM, cost: 0, components });
            }
            self.clients.len() - 1
        })
    }

    /// Drops the newest message in the longest queue of the client with the most.
    fn drop_newest(&mut self) -> Option<Displaced<C, S, T>> {
        let (at, client) =
            self.clients.iter_mut().enumerate().max_by_key(|(_, client)| client.cost)?;
        let longest = client.components.iter_mut().enumerate();
        let (place, queue) = longest.max_by_key(|(_, queue)| queue.cost)?;
        let item = queue.pop_back()?;
        let (name, component) = (client.name, queue.name);
        if queue.items.is_empty() {
            client.components.remove(place);
        }
        client.cost -= item.cost;
        self.len -= 1;
        self.cost -= item.cost;
        if client.components.is_empty() {
            self.clients.remove(at);
        }
        Some(Displaced::Refused(name, component, item.value))
    }

    /// Takes the next message, with its source.
    pub fn pop(&mut self) -> Option<(C, S, T)> {
        while let Some(client) = self.clients.front_mut() {
            if client.deficit <= 0 {
                client.deficit += QUANTUM;
                self.clients.rotate_left(1);
                continue;
            }
            let Some(mut queue) = client.components.pop_front() else {
                self.clients.pop_front();
                continue;
            };
            let item = queue.pop_front();
            let name = queue.name;
            if queue.items.is_empty() {
                self.spare_items = queue.items;
            } else {
                client.components.push_back(queue);
            }
            let Some(item) = item else { continue };
            client.deficit -= item.cost;
            client.cost -= item.cost;
            self.len -= 1;
            self.cost -= item.cost;
            let owner = client.name;
            if client.components.is_empty()
                && let Some(client) = self.clients.pop_front()
            {
                self.spare_components = client.components;
            }
            return Some((owner, name, item.value));
        }
        None
    }
}

impl<C, S: Copy + PartialEq, T> Client<C, S, T> {
    fn place(&mut self, name: S, spare: &mut VecDeque<Item<T>>) -> usize {
        let known = self.components.iter().position(|component| component.name == name);
        known.unwrap_or_else(|| {
            if self.components.len() < MAX_COMPONENTS {
                let (items, kinds) = (core::mem::take(spare), Vec::new());
                self.components.push_back(Component { name, items, cost: 0, first: 0, kinds });
            }
            self.components.len() - 1
        })
    }
}

impl<S, T> Component<S, T> {
    /// Returns the item of a kind, at most one.
    fn of_kind(&mut self, kind: u32) -> Option<&mut Item<T>> {
        let (_, number) = self.kinds.iter().find(|(known, _)| *known == kind)?;
        self.items.get_mut((number - self.first) as usize).promised("the item of a kind")
    }

    fn push(&mut self, item: Item<T>) {
        let number = self.first + self.items.len() as u64;
        self.kinds.extend(item.kind.map(|kind| (kind, number)));
        self.cost += item.cost;
        self.items.push_back(item);
    }

    fn pop_front(&mut self) -> Option<Item<T>> {
        let item = self.items.pop_front()?;
        self.cost -= item.cost;
        self.first += 1;
        self.forget(item.kind);
        Some(item)
    }

    fn pop_back(&mut self) -> Option<Item<T>> {
        let item = self.items.pop_back()?;
        self.cost -= item.cost;
        self.forget(item.kind);
        Some(item)
    }

    fn forget(&mut self, kind: Option<u32>) {
        if let Some(kind) = kind {
            self.kinds.retain(|(known, _)| *known != kind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Queue = FairQueue<u8, u8, u32>;

    fn drain(queue: &mut Queue) -> Vec<(u8, u8, u32)> {
        core::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn one_source_keeps_its_order() {
        let mut queue = Queue::new(100);
        for number in 0..100 {
            assert_eq!(queue.push(1, 1, 1_400, None, number), None);
        }
        assert_eq!(queue.push(1, 1, 1_400, None, 100), Some(Displaced::Refused(1, 1, 100)));
        let numbers: Vec<u32> = drain(&mut queue).iter().map(|(_, _, number)| *number).collect();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
        assert!(queue.is_empty() && queue.clients.is_empty());
    }

    #[test]
    fn a_message_in_the_place_of_another_counts_by_its_own_size() {
        let mut queue = Queue::new(2);
        assert_eq!(queue.push(1, 1, 45, Some(30), 0), None);
        assert_eq!(queue.push(1, 1, 2_900, Some(30), 1), Some(Displaced::Superseded(0)));
        assert_eq!(queue.push(1, 1, 45, None, 2), Some(Displaced::Refused(1, 1, 2)));
        assert_eq!((drain(&mut queue).len(), queue.cost), (1, 0));
    }

    #[test]
    fn a_flood_refuses_itself_and_waits_for_itself() {
        let mut queue = Queue::new(100);
        for number in 0..2_000 {
            let _ = queue.push(1, 1, 45, None, number);
        }
        assert_eq!(queue.push(2, 1, 45, None, 7), None);
        assert_eq!(queue.push(1, 9, 45, None, 8), None);
        let order = drain(&mut queue);
        let ahead =
            |source: (u8, u8)| order.iter().position(|item| (item.0, item.1) == source).unwrap();
        // One turn of the other client, and one message of the other component.
        assert!(ahead((2, 1)) <= 4, "{}", ahead((2, 1)));
        assert!(ahead((1, 9)) <= 2, "{}", ahead((1, 9)));
        // Ten small messages have the place of a large one.
        assert_eq!(order.len(), 1_002);
    }

    #[test]
    fn clients_share_by_bytes() {
        let mut queue = Queue::new(1_000);
        for number in 0..400 {
            assert_eq!(queue.push(1, 1, 1_200, None, number), None);
            assert_eq!(queue.push(2, 1, 50, None, number), None);
        }
        let (mut large, mut small) = (0, 0);
        for _ in 0..200 {
            match queue.pop() {
                Some((1, ..)) => large += 1_300,
                _ => small += 150,
            }
        }
        assert!((large - small as i64).abs() <= 2 * (QUANTUM + 1_300), "{large} and {small}");
    }

    #[test]
    fn many_sources_of_one_client_take_no_place_of_another() {
        let mut queue = Queue::new(10);
        let mut refused = Vec::new();
        for number in 0..500 {
            refused.extend(queue.push(1, (number % 200) as u8, 1_400, None, number));
            refused.extend(queue.take_excess());
        }
        for number in 0..10 {
            refused.extend(queue.push(2, 1, 1_400, None, number));
            refused.extend(queue.take_excess());
        }
        assert!(
            refused.iter().all(|item| matches!(item, Displaced::Refused(1, ..))),
            "{refused:?}"
        );
        assert!(queue.len() <= QUEUES as usize * 10);
        assert_eq!(drain(&mut queue).iter().filter(|item| item.0 == 2).count(), 10);
    }

    #[test]
    fn a_newer_message_replaces_a_waiting_one_of_its_kind() {
        let mut queue = Queue::new(10);
        assert_eq!(queue.push(1, 1, 45, Some(69), 1), None);
        assert_eq!(queue.push(1, 1, 45, None, 2), None);
        assert_eq!(queue.push(1, 1, 45, Some(69), 3), Some(Displaced::Superseded(1)));
        assert_eq!(queue.push(1, 2, 45, Some(69), 4), None);
        assert_eq!(queue.pop(), Some((1, 1, 3)));
        assert_eq!(queue.push(1, 1, 45, Some(69), 5), None);
        assert_eq!(queue.push(1, 1, 45, Some(70), 6), None);
        assert_eq!(queue.push(1, 1, 45, Some(69), 7), Some(Displaced::Superseded(5)));
        assert_eq!(drain(&mut queue), [(1, 2, 4), (1, 1, 2), (1, 1, 7), (1, 1, 6)]);
    }

    proptest! {
        #[test]
        fn every_loss_is_reported_and_memory_is_bounded(
            pushes in proptest::collection::vec(
                (any::<u8>(), any::<u8>(), 0_usize..2_000, any::<Option<bool>>(), any::<bool>()), 0..2_000),
        ) {
            let mut queue = Queue::new(5);
            let (mut given, mut taken) = (0, 0);
            for (client, component, bytes, kind, pops) in pushes {
                given += 1;
                taken += usize::from(queue.push(client, component, bytes, kind.map(u32::from), 0).is_some());
                while queue.take_excess().is_some() {
                    taken += 1;
                }
                if pops {
                    taken += usize::from(queue.pop().is_some());
                }
                prop_assert!(queue.cost <= QUEUES * 5 * FULL && queue.clients.len() <= MAX_CLIENTS);
                prop_assert_eq!(given, taken + queue.len());
            }
            taken += drain(&mut queue).len();
            prop_assert_eq!((given, queue.clients.len(), queue.cost), (taken, 0, 0));
        }
    }
}
