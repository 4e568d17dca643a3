//! What clients in programs of strangers need: memory of the caller, lists, puts without threads.

use barograph_model::NS_PER_S;
use barograph_staging::client::{
    ClientConfig, GetOptions, GuestClient, ListCursor, PutOptions, PutOrder,
};
use barograph_staging::{FaultCode, ListQuery, StagingClient};

use crate::common::{Served, bytes, client, clock, key, map, serve};

fn put(client: &StagingClient, number: u64, data: &[u8]) {
    let report = client.put(&key(number), 1, data, &PutOptions::default());
    report.unwrap();
}

#[test]
fn memory_of_the_caller_is_filled_or_refused_with_what_it_needs() {
    let served = serve();
    let over_socket = ClientConfig {
        mapped: None,
        ..ClientConfig::default()
    };
    let ways = [
        client(1, &[&served]),
        StagingClient::new(over_socket, map(0, &[&served]), clock()),
    ];
    for length in [0, 1, 4_097, 3 << 20] {
        let data = bytes(length as u64, length);
        put(&ways[0], length as u64, &data);
        for client in &ways {
            let mut memory = vec![7; length + 9];
            let key = key(length as u64);
            let info = client.get_to(&key, &mut memory, &GetOptions::default());
            assert_eq!(info.unwrap().bytes, length as u64);
            assert!(memory[..length] == data && memory[length..] == [7; 9]);
            let Some(short) = length.checked_sub(1) else {
                continue;
            };
            let refused = client.get_to(&key, &mut memory[..short], &GetOptions::default());
            let refused = refused.unwrap_err();
            assert_eq!(refused.code(), Some(FaultCode::TooLong));
            assert_eq!(refused.number(), length as u64);
            // The next request is answered.
            assert_eq!(client.get(&key).unwrap().1, data);
        }
    }
}

#[test]
fn a_cursor_gives_each_block_once_over_pages_and_servers() {
    let servers = [serve(), serve(), serve()];
    let client = client(2, &servers.each_ref());
    for number in 0..2_500 {
        put(&client, number, b"1");
    }
    let mut cursor = ListCursor::new(ListQuery::default());
    let mut numbers = 0;
    while let Some((listed, info)) = cursor.next(&client).unwrap() {
        assert_eq!((listed, info.bytes), (key(numbers), 1));
        numbers += 1;
    }
    assert_eq!(numbers, 2_500);
    assert!(cursor.next(&client).unwrap().is_none());
}

#[test]
fn replicas_are_put_in_turn_as_at_once() {
    let servers = [serve(), serve(), serve()];
    let config = ClientConfig {
        replicas: 3,
        ..ClientConfig::default()
    };
    let servers: Vec<&Served> = servers.iter().collect();
    let guest = GuestClient::new(config.clone(), map(0, &servers), clock());
    let client = guest.client().unwrap();
    let report = client.put(&key(1), 1, b"1", &PutOptions::default());
    assert_eq!(report.unwrap().acknowledged.len(), 3);
    let in_turn = ClientConfig {
        put_order: PutOrder::InTurn,
        timeout_ns: NS_PER_S,
        ..config
    };
    let mut lost = map(0, &servers[..2]);
    let nowhere = servers[2].directory.path().join("nowhere");
    lost.servers
        .insert(9, barograph_staging::client::ServerAddress::Unix(nowhere));
    let client = StagingClient::new(in_turn, lost, clock());
    let refused = client.put(&key(2), 1, b"2", &PutOptions::default());
    assert_eq!(refused.unwrap_err().code(), Some(FaultCode::TooFew));
    let options = PutOptions {
        acks: Some(2),
        ..PutOptions::default()
    };
    let report = client.put(&key(2), 1, b"2", &options).unwrap();
    assert_eq!((report.acknowledged.len(), report.failed.len()), (2, 1));
}
