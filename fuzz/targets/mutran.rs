//! Any bytes as a stream and as a datagram of MAVLink frames; the first byte says how the stream is
//! cut. Any cut must give the same frames, in order, each as long as its header says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use skybraid_transport::mutran::{Classifier, Header, Span, StreamClassifier};

fn spans<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Span> {
    let mut found = Vec::new();
    let mut stream = StreamClassifier::new(Classifier::default());
    let mut fed = 0;
    for piece in pieces {
        stream.feed(piece, &mut |span| found.push(span));
        fed += piece.len() as u64;
        assert!(stream.decided() + 9 >= fed);
    }
    found
}

fuzz_target!(|input: &[u8]| {
    let Some((cut, bytes)) = input.split_first() else { return };
    Classifier::default().classify(bytes);
    let whole = spans([bytes].into_iter());
    assert_eq!(spans(bytes.chunks(1 + usize::from(*cut))), whole);
    let mut end = 0;
    for span in whole {
        assert!(span.start >= end);
        end = span.end;
        assert_eq!(Header::parse(&bytes[span.start as usize..]), Ok(span.header));
        assert_eq!(span.end - span.start, span.header.frame() as u64);
    }
});
